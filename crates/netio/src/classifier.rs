//! Classifier programs at an interface's two hooks.
//!
//! Principle: a program hangs on a tcx link where the kernel has these (Linux 6.6). The link
//! belongs to the process, so the kernel takes the program off however the process ends. Older
//! kernels get a filter of the clsact queue instead. That one stays when a process is killed, so
//! such a program must let packets pass on its own account once its process is dead, and the next
//! start removes what is left. Which of both it is, is found by trying: distributions bring
//! features to old versions, and leave them out of new ones.
//!
//! Programs of ours keep an order on one hook, whichever was started first (`ORDER`).

use crate::attribute::{Attributes, Value, put};
use crate::bpf;
use crate::netlink::{Netlink, Object};
use crate::traffic_control::{TcMessage, attribute, put_text, text};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use nix::libc;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A place that packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets that arrive on the interface, before IP sees them.
    Ingress,
    /// Packets that leave by the interface, before they queue.
    Egress,
}

impl Hook {
    /// The hook as an attach type of linux/bpf.h: BPF_TCX_INGRESS, BPF_TCX_EGRESS.
    fn tcx(self) -> u32 {
        match self {
            Hook::Ingress => 46,
            Hook::Egress => 47,
        }
    }

    /// The hook as a class of the clsact queue: TC_H_MIN_INGRESS, TC_H_MIN_EGRESS.
    fn class(self) -> u32 {
        match self {
            Hook::Ingress => CLSACT | 0xfff2,
            Hook::Egress => CLSACT | 0xfff3,
        }
    }
}

/// Number of the clsact queue: the major number of TC_H_CLSACT, and no minor one.
const CLSACT: u32 = 0xffff_0000;
/// Number that every filter of ours has within its priority.
const HANDLE: u32 = 1;
/// The program's result decides about the packet (TCA_BPF_FLAG_ACT_DIRECT).
const DIRECT_ACTION: u32 = 1;
/// Priority of the first of our filters: behind those to which people give small numbers, and
/// before those that get one from the kernel, which begins at 49152.
const PRIORITY: u16 = 24_000;

/// Names of our programs in the order that a packet passes them, on either hook.
///
/// Windows are written into packets before these are gathered. Emulation is the link, so it stands
/// outside of all: what leaves is gathered, then emulated; what arrives was emulated before
/// anything else sees it.
const ORDER: [(Hook, &[&str]); 2] = [
    (Hook::Ingress, &["sheaf_detour", "sheaf_in", "sheaf_split"]),
    (Hook::Egress, &["sheaf_out", "sheaf_merge", "sheaf_detour"]),
];

/// The place of program `name` among ours on `hook`; others stand behind.
fn rank(hook: Hook, name: &str) -> usize {
    let (_, names) = ORDER[usize::from(hook == Hook::Egress)];
    names.iter().position(|one| *one == name).unwrap_or(names.len())
}

/// A program on an interface, until this value is dropped.
#[derive(Debug)]
pub struct Link {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcx(OwnedFd),
    Clsact(Filter),
}

impl Link {
    /// Puts `program`, which is called `name`, on `hook` of interface `ifindex` of this thread's
    /// network namespace.
    pub fn attach(
        program: BorrowedFd<'_>,
        name: &str,
        ifindex: u32,
        hook: Hook,
    ) -> io::Result<Link> {
        match Link::tcx(program, name, ifindex, hook) {
            Err(error) if has_no_tcx(&error) => Link::clsact(program, name, ifindex, hook),
            attached => attached,
        }
    }

    /// The same by tcx alone.
    pub fn tcx(program: BorrowedFd<'_>, name: &str, ifindex: u32, hook: Hook) -> io::Result<Link> {
        // A kernel without tcx does not know the question; it refuses the link, too, with its
        // reason.
        let others = bpf::linked(ifindex, hook.tcx()).unwrap_or_default();
        let own = rank(hook, name);
        let last = rank(hook, "");
        let later = |name: &str| (own + 1..last).contains(&rank(hook, name));
        let before = others.iter().find(|(_, name)| later(name)).map(|(id, _)| *id);
        let link = bpf::link(program, ifindex, hook.tcx(), before)?;
        Ok(Link { kind: Kind::Tcx(link) })
    }

    /// The same by a filter of the clsact queue alone.
    pub fn clsact(
        program: BorrowedFd<'_>,
        name: &str,
        ifindex: u32,
        hook: Hook,
    ) -> io::Result<Link> {
        Filter::attach(program, name, ifindex, hook)
            .map(|filter| Link { kind: Kind::Clsact(filter) })
    }

    /// How the program hangs there: `tcx` or `clsact`.
    pub fn how(&self) -> &'static str {
        match &self.kind {
            Kind::Tcx(_) => "tcx",
            Kind::Clsact(_) => "clsact",
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Tcx(link) => bpf::unlink(link.as_fd()),
            // It fails where the interface has gone, and the filter with it.
            Kind::Clsact(filter) => drop(filter.remove()),
        }
    }
}

/// Whether an error says that the kernel has no tcx links. Old ones do not know the attach type;
/// new ones built without CONFIG_NET_XGRESS return the same.
pub fn has_no_tcx(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::E2BIG))
}

/// A filter of the clsact queue.
#[derive(Debug)]
struct Filter {
    /// Stays in the namespace of the interface, from wherever the value is dropped.
    netlink: Netlink,
    message: TcMessage,
}

impl Filter {
    fn attach(program: BorrowedFd<'_>, name: &str, ifindex: u32, hook: Hook) -> io::Result<Filter> {
        let mut netlink = Netlink::open()?;
        add_clsact(&mut netlink, ifindex, hook)?;
        remove_filters(&mut netlink, name, ifindex, hook)?;
        let priority = PRIORITY + rank(hook, name) as u16;
        let mut message = filter(ifindex, hook, priority, HANDLE);
        message.put_kind("bpf");
        let (mut create, mut options) = (message.clone(), Vec::new());
        put(&mut options, attribute::BPF_FD, &program.as_raw_fd().to_ne_bytes());
        put_text(&mut options, attribute::BPF_NAME, name);
        put(&mut options, attribute::BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
        put(&mut create.attributes, attribute::OPTIONS, &options);
        let create = Object::NewTrafficFilter(create);
        netlink.request(create, NLM_F_CREATE | NLM_F_EXCL).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOENT) => unsupported(
                    "this kernel has neither tcx nor bpf filters; load the module cls_bpf, or use \
                     a kernel with CONFIG_NET_CLS_BPF",
                ),
                _ => error,
            }
        })?;
        Ok(Filter { netlink, message })
    }

    fn remove(&mut self) -> io::Result<()> {
        let message = Object::DelTrafficFilter(self.message.clone());
        self.netlink.request(message, 0)
    }
}

fn unsupported(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// A message about one filter for packets of every protocol.
fn filter(ifindex: u32, hook: Hook, priority: u16, handle: u32) -> TcMessage {
    let info = u32::from(priority) << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
    TcMessage { parent: hook.class(), handle, info, ..TcMessage::on(ifindex) }
}

/// Gives interface `ifindex` its clsact queue, unless it has one.
fn add_clsact(netlink: &mut Netlink, ifindex: u32, hook: Hook) -> io::Result<()> {
    // TC_H_CLSACT is also the parent of ingress queues.
    let (parent, handle) = (CLSACT | 0xfff1, CLSACT);
    let mut message = TcMessage { parent, handle, ..TcMessage::on(ifindex) };
    message.put_kind("clsact");
    let message = Object::NewQueueDiscipline(message);
    let error = match netlink.request(message, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EEXIST) if hook == Hook::Ingress => Ok(()),
        // An older queue of kind ingress stands in the same place. It would take filters for
        // egress, and run them at ingress.
        Some(libc::EEXIST) if has_kind(netlink, ifindex, handle, "clsact")? => Ok(()),
        Some(libc::EEXIST) => Err(unsupported(
            "the interface has a queue of kind ingress, which has no egress; remove it with `tc \
             qdisc del dev IF ingress`",
        )),
        Some(libc::ENOENT) => Err(unsupported(
            "this kernel has neither tcx nor the clsact queue; load the module sch_ingress, or use \
             a kernel with CONFIG_NET_SCH_INGRESS",
        )),
        _ => Err(error),
    }
}

/// Whether the queue `handle` of interface `ifindex` is of `kind`.
fn has_kind(netlink: &mut Netlink, ifindex: u32, handle: u32, kind: &str) -> io::Result<bool> {
    let mut found = false;
    let question = Object::GetQueueDiscipline(TcMessage::on(ifindex));
    netlink.dump(question, |object| {
        let Object::NewQueueDiscipline(message) = object else { return };
        let is_it = (message.index, message.handle) == (ifindex, handle);
        found |= is_it && message.kind().is_some_and(|its| its == kind);
    })?;
    Ok(found)
}

/// Removes the filters of clsact that are called `name`: what a killed process left.
fn remove_filters(netlink: &mut Netlink, name: &str, ifindex: u32, hook: Hook) -> io::Result<()> {
    for (found, _) in named_filters(netlink, name, ifindex, hook)? {
        let mut message = TcMessage { attributes: Vec::new(), ..found };
        message.put_kind("bpf");
        netlink.request(Object::DelTrafficFilter(message), 0)?;
    }
    Ok(())
}

/// A program that hangs on clsact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Place of its filter among the filters: lower ones see packets first.
    pub priority: u16,
    /// Number of its filter at that place.
    pub handle: u32,
    /// Number of the program.
    pub program: u32,
}

/// The programs named `name` on clsact at `hook` of interface `ifindex` of this thread's network
/// namespace, in the order in which packets meet them.
///
/// A filter without a name counts, too: so are all programs of aya on kernels without tracing,
/// where aya takes names to be unknown. Other tools name theirs.
pub fn attached(ifindex: u32, hook: Hook, name: &str) -> io::Result<Vec<Attached>> {
    let mut netlink = Netlink::open()?;
    let mut found = named_filters(&mut netlink, name, ifindex, hook)?;
    found.extend(named_filters(&mut netlink, "", ifindex, hook)?);
    let attached = found.into_iter().filter_map(|(message, program)| {
        let TcMessage { handle, info, .. } = message;
        Some(Attached { priority: (info >> 16) as u16, handle, program: program? })
    });
    let mut attached: Vec<_> = attached.collect();
    attached.sort_by_key(|one| (one.priority, one.handle));
    Ok(attached)
}

/// The filters of clsact that are called `name`, with the numbers of their programs. An interface
/// without clsact has none.
fn named_filters(
    netlink: &mut Netlink,
    name: &str,
    ifindex: u32,
    hook: Hook,
) -> io::Result<Vec<(TcMessage, Option<u32>)>> {
    let question = TcMessage { parent: hook.class(), ..TcMessage::on(ifindex) };
    let mut found = Vec::new();
    let listed = netlink.dump(Object::GetTrafficFilter(question), |object| {
        let Object::NewTrafficFilter(message) = object else { return };
        let options = message.attribute(attribute::OPTIONS).unwrap_or_default();
        let (mut is_named, mut program) = (false, None);
        for (kind, value) in Attributes::of(options) {
            match kind {
                attribute::BPF_NAME => is_named |= text(value).is_some_and(|its| its == name),
                attribute::BPF_ID => program = u32::of(value),
                _ => {}
            }
        }
        if is_named {
            found.push((message, program));
        }
    });
    match listed {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            Err(error)
        }
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::{Instruction, load};
    use crate::ip;
    use crate::netns::Namespace;

    /// A program that lets everything pass.
    fn passes(name: &str) -> io::Result<OwnedFd> {
        let on = Instruction::new(0xb7, 0, 0, 0, -1);
        let exit = Instruction::new(0x95, 0, 0, 0, 0);
        load(&[on, exit], name)
    }

    fn on_an_interface(check: impl FnOnce(u32) -> io::Result<()> + Send) {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                ip::run("link add near type veth peer name far")?;
                check(ip::index("near")?)
            })
            .unwrap();
    }

    /// Names of the filters on the egress of clsact, in the order that packets pass them.
    fn filters(ifindex: u32) -> io::Result<Vec<String>> {
        let question = TcMessage { parent: Hook::Egress.class(), ..TcMessage::on(ifindex) };
        let mut names = Vec::new();
        Netlink::open()?.dump(Object::GetTrafficFilter(question), |object| {
            let Object::NewTrafficFilter(message) = object else { return };
            let options = message.attribute(attribute::OPTIONS).unwrap_or_default();
            let named = Attributes::of(options).filter(|(kind, _)| *kind == attribute::BPF_NAME);
            names.extend(named.filter_map(|(_, name)| text(name)));
        })?;
        Ok(names)
    }

    #[test]
    fn programs_stand_in_one_order_whichever_came_first() {
        for names in [["sheaf_detour", "sheaf_merge"], ["sheaf_merge", "sheaf_detour"]] {
            on_an_interface(|ifindex| {
                let programs = names.map(|name| passes(name).unwrap());
                let by_tcx = [0, 1].map(|at| {
                    Link::tcx(programs[at].as_fd(), names[at], ifindex, Hook::Egress).unwrap()
                });
                let linked = bpf::linked(ifindex, Hook::Egress.tcx())?;
                let linked: Vec<_> = linked.into_iter().map(|(_, name)| name).collect();
                assert_eq!(linked, ["sheaf_merge", "sheaf_detour"]);
                drop(by_tcx);
                assert_eq!(bpf::linked(ifindex, Hook::Egress.tcx())?, []);

                let by_clsact = [0, 1].map(|at| {
                    Link::clsact(programs[at].as_fd(), names[at], ifindex, Hook::Egress).unwrap()
                });
                assert_eq!(filters(ifindex)?, ["sheaf_merge", "sheaf_detour"]);
                drop(by_clsact);
                assert_eq!(filters(ifindex)?, [""; 0]);
                Ok(())
            });
        }
    }

    #[test]
    fn what_a_killed_process_left_on_clsact_goes_at_the_next_start() {
        on_an_interface(|ifindex| {
            let program = passes("sheaf_merge")?;
            let attach = || Link::clsact(program.as_fd(), "sheaf_merge", ifindex, Hook::Egress);
            std::mem::forget(attach()?);
            let link = attach()?;
            assert_eq!(filters(ifindex)?, ["sheaf_merge"]);
            assert_eq!(link.how(), "clsact");
            drop(link);
            assert_eq!(filters(ifindex)?, [""; 0]);
            Ok(())
        });
    }

    #[test]
    fn an_interface_that_has_an_ingress_queue_says_why_it_has_no_egress() {
        on_an_interface(|ifindex| {
            let (parent, handle) = (CLSACT | 0xfff1, CLSACT);
            let mut message = TcMessage { parent, handle, ..TcMessage::on(ifindex) };
            message.put_kind("ingress");
            let message = Object::NewQueueDiscipline(message);
            Netlink::open()?.request(message, NLM_F_CREATE)?;
            let program = passes("sheaf_merge")?;
            let error = Link::clsact(program.as_fd(), "sheaf_merge", ifindex, Hook::Egress);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("tc qdisc del dev IF ingress"), "{error}");
            Ok(())
        });
    }
}
