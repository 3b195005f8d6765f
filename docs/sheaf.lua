-- Wireshark's view of Sheaf's frames: meta packets, and frames of format 2 with their blocks.
--
--     wireshark -X lua_script:sheaf.lua          once
--     cp sheaf.lua ~/.local/lib/wireshark/plugins/    for good
--
-- IP protocol 253 is taken for Sheaf's, and EtherType 0x88b5, which others may use, too; on UDP,
-- choose "Decode As" and "sheaf". The layout is that of crates/wire/src/aggfrag and
-- crates/wire/src/compress. A compressed packet in compact form has the length of its context, so
-- the capture has to contain the definition; what stands behind a packet of an unknown context is
-- shown as bytes.
--
-- Runs with the Lua of Wireshark 3.6 and newer.

local sheaf = Proto("sheaf", "Sheaf")

local HEADER = 4
local CUT_HEADER = 6
local DEFINITION_HEADER = 4
local ETHERNET_HEADER = 4
local UDP_HEADER = 8
local RTP_HEADER = 12
local PROTOCOL = 253
local ETHERTYPE = 0x88b5

local ID_RULES = { [0] = "constant", [1] = "follows the counter", [2] = "explicit" }
local KINDS = { [1] = "known", [2] = "unknown", [3] = "lost" }

local f = {
    format = ProtoField.uint8("sheaf.format", "Format"),
    packets = ProtoField.uint16("sheaf.packets", "Complete packets"),
    sub_type = ProtoField.uint8("sheaf.sub_type", "Sub-type"),
    sequence = ProtoField.uint8("sheaf.sequence", "Sequence number"),
    tag = ProtoField.uint16("sheaf.tag", "Tag of the stream", base.DEC, nil, 0xf000),
    offset = ProtoField.uint16("sheaf.offset", "Block offset", base.DEC, nil, 0x0fff),
    continuation = ProtoField.bytes("sheaf.continuation", "Rest of the block before"),
    joined = ProtoField.bytes("sheaf.joined", "Block joined from several frames"),
    ethertype = ProtoField.uint16("sheaf.ethertype", "EtherType", base.HEX),
    pad = ProtoField.bytes("sheaf.pad", "Pad"),
    rest = ProtoField.bytes("sheaf.rest", "Bytes that cannot be told apart"),
    cut_len = ProtoField.uint16("sheaf.cut.len", "Length", base.DEC, nil, 0x0fff),
    cut_check = ProtoField.uint32("sheaf.cut.check", "CRC-32", base.HEX),
    cut_part = ProtoField.bytes("sheaf.cut.part", "Part in this frame"),
    number = ProtoField.uint8("sheaf.context", "Context"),
    rtp = ProtoField.bool("sheaf.definition.rtp", "RTP", 8, nil, 0x04),
    id_rule = ProtoField.uint8(
        "sheaf.definition.id", "Identification", base.DEC, ID_RULES, 0x03),
    stride = ProtoField.uint16("sheaf.definition.stride", "Stride of the time stamp"),
    compact = ProtoField.bool("sheaf.compressed.compact", "Compact form"),
    counter = ProtoField.uint8("sheaf.compressed.counter", "Counter, low bits"),
    check = ProtoField.uint16("sheaf.compressed.check", "Check", base.HEX),
    marker = ProtoField.bool("sheaf.compressed.marker", "Marker", 8, nil, 0x08),
    len = ProtoField.uint16("sheaf.compressed.len", "Payload length"),
    timestamp = ProtoField.uint32("sheaf.compressed.timestamp", "Time stamp"),
    id = ProtoField.uint16("sheaf.compressed.id", "Identification", base.HEX),
    payload = ProtoField.bytes("sheaf.compressed.payload", "Payload"),
    kind = ProtoField.uint8("sheaf.feedback.kind", "Context is", base.DEC, KINDS, 0xf0),
    about = ProtoField.uint8("sheaf.feedback.tag", "Tag of the stream", base.DEC, nil, 0x0f),
    generation = ProtoField.uint16("sheaf.feedback.generation", "Generation", base.HEX),
    constants = ProtoField.uint32("sheaf.feedback.check", "CRC-32 of the constants", base.HEX),
}
sheaf.fields = f

local e = {
    unknown = ProtoExpert.new(
        "sheaf.unknown", "The capture does not define this context",
        expert.group.UNDECODED, expert.severity.NOTE),
    malformed = ProtoExpert.new(
        "sheaf.malformed", "No block of format 2", expert.group.MALFORMED, expert.severity.ERROR),
    joined = ProtoExpert.new(
        "sheaf.joined.wrong", "The parts do not belong together",
        expert.group.REASSEMBLE, expert.severity.WARN),
}
sheaf.experts = e

-- What earlier frames of the capture say. Filled while it is read the first time, in order.
local contexts -- stream and number → list of { frame, payload length }
local partials -- stream → { next sequence, bytes, length, check }
local joins    -- frame → { bytes, whether the CRC is right }

function sheaf.init()
    contexts, partials, joins = {}, {}, {}
end

local function crc32(bytes)
    local crc = 0xffffffff
    for index = 0, bytes:len() - 1 do
        crc = bit.bxor(crc, bytes:get_index(index))
        for _ = 1, 8 do
            local carry = bit.band(crc, 1)
            crc = bit.rshift(crc, 1)
            if carry == 1 then
                crc = bit.bxor(crc, 0xedb88320)
            end
        end
    end
    -- The library's numbers are signed.
    return (bit.bnot(crc)) % 0x100000000
end

-- Length of the IP packet at the start of a range, its header's length and protocol; nil: it is none.
local function ip_packet(tvb)
    if tvb:len() < 20 then
        return nil
    end
    local version = tvb(0, 1):bitfield(0, 4)
    local len, header, protocol
    if version == 4 then
        len, header, protocol = tvb(2, 2):uint(), tvb(0, 1):bitfield(4, 4) * 4, tvb(9, 1):uint()
    elseif version == 6 and tvb:len() >= 40 then
        len, header, protocol = 40 + tvb(4, 2):uint(), 40, tvb(6, 1):uint()
    end
    if not len or len > tvb:len() or len < header or header < 20 or protocol == PROTOCOL then
        return nil
    end
    return len, header
end

local function show_packet(range, pinfo, tree)
    local name = range(0, 1):bitfield(0, 4) == 4 and "ip" or "ipv6"
    Dissector.get(name):call(range:tvb(), pinfo, tree)
end

-- Payload length of the context as it was defined last before a frame.
local function payload_len(stream, number, frame)
    local found
    for _, definition in ipairs(contexts[stream .. "/" .. number] or {}) do
        if definition.frame < frame then
            found = definition.payload
        end
    end
    return found
end

-- Shows the block at the start of a range. Returns its length, and whether it is a whole packet; nil:
-- what follows cannot be told apart.
local function block(tvb, pinfo, tree, stream)
    local first = tvb(0, 1):uint()
    local kind = bit.rshift(first, 4)
    if kind == 4 or kind == 6 then
        local len = ip_packet(tvb)
        if not len then
            tree:add_proto_expert_info(e.malformed)
            return nil
        end
        show_packet(tvb(0, len), pinfo, tree:add(sheaf, tvb(0, len), "Packet"))
        return len, true
    elseif kind == 2 then
        local len = tvb:len() >= ETHERNET_HEADER and tvb(0, 2):bitfield(4, 12)
        if not len or tvb:len() < ETHERNET_HEADER + len then
            tree:add_proto_expert_info(e.malformed)
            return nil
        end
        local sub = tree:add(sheaf, tvb(0, ETHERNET_HEADER + len), "Ethernet payload")
        sub:add(f.ethertype, tvb(2, 2))
        local range = tvb(ETHERNET_HEADER, len)
        DissectorTable.get("ethertype"):try(tvb(2, 2):uint(), range:tvb(), pinfo, sub)
        return ETHERNET_HEADER + len, true
    elseif kind == 9 then
        local header = DEFINITION_HEADER
        local len, ip = nil, nil
        if tvb:len() > header then
            len, ip = ip_packet(tvb(header):tvb())
        end
        if not len then
            tree:add_proto_expert_info(e.malformed)
            return nil
        end
        local number = tvb(1, 1):uint()
        local sub = tree:add(sheaf, tvb(0, header + len), "Definition of context " .. number)
        sub:add(f.rtp, tvb(0, 1))
        sub:add(f.id_rule, tvb(0, 1))
        sub:add(f.number, tvb(1, 1))
        sub:add(f.stride, tvb(2, 2))
        show_packet(tvb(header, len), pinfo, sub)
        if not pinfo.visited then
            local headers = ip + UDP_HEADER + (bit.band(first, 4) ~= 0 and RTP_HEADER or 0)
            local key = stream .. "/" .. number
            contexts[key] = contexts[key] or {}
            table.insert(contexts[key], { frame = pinfo.number, payload = len - headers })
        end
        return header + len, true
    elseif kind == 10 or kind >= 12 then
        local compact = kind >= 12
        local at = compact and 4 or 5
        if tvb:len() < at then
            tree:add_proto_expert_info(e.malformed)
            return nil
        end
        local number = compact and tvb(0, 2):bitfield(2, 8) or tvb(1, 1):uint()
        local sub = tree:add(sheaf, tvb(), "Compressed packet of context " .. number)
        local payload = payload_len(stream, number, pinfo.number)
        sub:add(f.compact, compact)
        if compact then
            sub:add(f.number, tvb(0, 2), number)
            sub:add(f.counter, tvb(1, 1), tvb(1, 1):bitfield(2, 6))
            sub:add(f.check, tvb(2, 2))
        else
            sub:add(f.marker, tvb(0, 1))
            sub:add(f.number, tvb(1, 1))
            sub:add(f.counter, tvb(2, 1))
            sub:add(f.check, tvb(3, 2))
            -- Flag, field, bytes.
            for _, one in ipairs({ { 4, f.len, 2 }, { 2, f.timestamp, 4 }, { 1, f.id, 2 } }) do
                if bit.band(first, one[1]) ~= 0 and tvb:len() >= at + one[3] then
                    sub:add(one[2], tvb(at, one[3]))
                    payload = one[1] == 4 and tvb(at, 2):uint() or payload
                    at = at + one[3]
                end
            end
        end
        if not payload then
            sub:add_proto_expert_info(e.unknown)
            return nil
        end
        if at + payload > tvb:len() then
            sub:add_proto_expert_info(e.malformed)
            return nil
        end
        if payload > 0 then
            sub:add(f.payload, tvb(at, payload))
        end
        sub:set_len(at + payload)
        return at + payload, true
    end
    tree:add_proto_expert_info(e.malformed)
    return nil
end

-- Joins the bytes before the first block of a frame with what came before it.
local function continue(tvb, len, offset, pinfo, tree, stream, sequence)
    local partial = partials[stream]
    if not pinfo.visited and partial then
        partials[stream] = nil
        if sequence == partial.next and offset == partial.len - partial.bytes:len() then
            local bytes = ByteArray.new()
            bytes:append(partial.bytes)
            bytes:append(tvb(0, len):bytes())
            partial.bytes, partial.next = bytes, (sequence + 1) % 256
            if len < offset then
                partials[stream] = partial
            else
                joins[pinfo.number] = { bytes = bytes, right = crc32(bytes) == partial.check }
            end
        end
    end
    local joined = joins[pinfo.number]
    local count = 0
    if joined and joined.right then
        local whole = joined.bytes:tvb("Joined block")
        tree:add(f.joined, whole())
        local _, is_packet = block(whole, pinfo, tree, stream)
        count = is_packet and 1 or 0
    elseif joined then
        tree:add_proto_expert_info(e.joined)
    end
    return count
end

local function frame(tvb, pinfo, tree, stream)
    local sequence, word = tvb(1, 1):uint(), tvb(2, 2):uint()
    local offset = bit.band(word, 0xfff)
    tree:add(f.sub_type, tvb(0, 1))
    tree:add(f.sequence, tvb(1, 1))
    tree:add(f.tag, tvb(2, 2))
    tree:add(f.offset, tvb(2, 2))
    stream = stream .. "/" .. bit.rshift(word, 12)
    local at, packets = HEADER, 0
    local len = math.min(offset, tvb:len() - HEADER)
    if len > 0 then
        tree:add(f.continuation, tvb(at, len))
        packets = continue(tvb(at):tvb(), len, offset, pinfo, tree, stream, sequence)
        at = at + len
    elseif not pinfo.visited then
        partials[stream] = nil
    end
    while at < tvb:len() do
        local first = tvb(at, 1):uint()
        local kind = bit.rshift(first, 4)
        if kind == 0 then
            tree:add(f.pad, tvb(at))
            break
        elseif kind == 8 and tvb:len() >= at + CUT_HEADER then
            local sub = tree:add(sheaf, tvb(at), "Packet that continues in the next frame")
            sub:add(f.cut_len, tvb(at, 2))
            sub:add(f.cut_check, tvb(at + 2, 4))
            local bytes = ByteArray.new()
            if tvb:len() > at + CUT_HEADER then
                sub:add(f.cut_part, tvb(at + CUT_HEADER))
                bytes = tvb(at + CUT_HEADER):bytes()
            end
            if not pinfo.visited then
                partials[stream] = {
                    next = (sequence + 1) % 256,
                    bytes = bytes,
                    len = bit.band(tvb(at, 2):uint(), 0xfff),
                    check = tvb(at + 2, 4):uint(),
                }
            end
            break
        end
        local length, is_packet = block(tvb(at):tvb(), pinfo, tree, stream)
        if not length then
            tree:add(f.rest, tvb(at))
            break
        end
        packets = packets + (is_packet and 1 or 0)
        at = at + length
    end
    tree:add(f.packets, packets):set_generated()
    return string.format("frame %d, %d packets", sequence, packets)
end

local function feedback(tvb, tree)
    tree:add(f.sub_type, tvb(0, 1))
    local at, items = 2, 0
    -- Zeros of Ethernet may follow the last item.
    while at < tvb:len() and items < tvb(1, 1):uint() do
        local kind = tvb(at, 1):bitfield(0, 4)
        local len = ({ 8, 2, 1 })[kind]
        if not len or at + len > tvb:len() then
            tree:add_proto_expert_info(e.malformed)
            break
        end
        local sub = tree:add(sheaf, tvb(at, len), "Context " .. KINDS[kind])
        sub:add(f.kind, tvb(at, 1))
        sub:add(f.about, tvb(at, 1))
        if len > 1 then
            sub:add(f.number, tvb(at + 1, 1))
        end
        if len == 8 then
            sub:add(f.generation, tvb(at + 2, 2))
            sub:add(f.constants, tvb(at + 4, 4))
        end
        at, items = at + len, items + 1
    end
    return string.format("about %d contexts", items)
end

local function meta(tvb, pinfo, tree)
    local at, packets = 0, 0
    while at < tvb:len() do
        local len = ip_packet(tvb(at):tvb())
        if not len then
            tree:add_proto_expert_info(e.malformed)
            tree:add(f.rest, tvb(at))
            break
        end
        show_packet(tvb(at, len), pinfo, tree:add(sheaf, tvb(at, len), "Packet"))
        at, packets = at + len, packets + 1
    end
    tree:add(f.packets, packets):set_generated()
    return string.format("meta packet, %d packets", packets)
end

function sheaf.dissector(tvb, pinfo, root)
    if tvb:len() < 2 then
        return 0
    end
    -- Inner packets change these.
    local stream = tostring(pinfo.src) .. "/" .. tostring(pinfo.dst)
    local tree = root:add(sheaf, tvb())
    local nibble, sub_type, info = tvb(0, 1):bitfield(0, 4), tvb(0, 1):uint(), nil
    if nibble == 4 or nibble == 6 then
        tree:add(f.format, 1):set_generated()
        info = meta(tvb, pinfo, tree)
    elseif sub_type == 0 and tvb:len() > HEADER then
        tree:add(f.format, 2):set_generated()
        info = frame(tvb, pinfo, tree, stream)
    elseif sub_type == 2 then
        tree:add(f.format, 2):set_generated()
        info = feedback(tvb, tree)
    else
        return 0
    end
    tree:append_text(": " .. info)
    pinfo.cols.protocol = "Sheaf"
    pinfo.cols.info = info
    return tvb:len()
end

DissectorTable.get("ip.proto"):add(PROTOCOL, sheaf)
DissectorTable.get("ethertype"):add(ETHERTYPE, sheaf)
DissectorTable.get("udp.port"):add_for_decode_as(sheaf)
