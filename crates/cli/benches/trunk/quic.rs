//! A QUIC flow (quinn, with its own CUBIC): one stream from host 1 to host 2.
//!
//! QUIC is in user space: each end is a thread that sends datagrams, in super-packets where the
//! kernel takes them, and sees losses, disorder and delays by itself.

use nix::sys::socket::{setsockopt, sockopt};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use quinn::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use quinn::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use quinn::rustls::server::AlwaysResolvesServerRawPublicKeys;
use quinn::rustls::sign::CertifiedKey;
use quinn::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    version,
};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// Bytes that may be under way: as many as TCP's buffers hold, so that no window bounds the flow.
const WINDOW: u32 = 32 << 20;
/// Buffers of the sockets in bytes, so that a thread that does not run for some milliseconds loses
/// nothing: 100 ms at 300 Mbit/s.
const SOCKET_BUFFER: usize = 4 << 20;
/// A connection stands after this: longer than quinn tries.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(40);
/// Name that the client gives the server; the key alone counts.
const NAME: &str = "host2";
/// Bytes that the sender gives to the stream at once.
const CHUNK: usize = 1 << 16;

/// Begins a flow from the first socket to the second, and counts what arrives. Returns the threads
/// of both ends, and what ends both without waiting for what is under way.
pub fn start(
    [from, to]: [UdpSocket; 2],
    received: Arc<AtomicU64>,
) -> ([JoinHandle<()>; 2], impl FnOnce()) {
    for socket in [&from, &to] {
        setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER).expect("this is root");
        setsockopt(socket, sockopt::SndBufForce, &SOCKET_BUFFER).expect("this is root");
    }
    let far = to.local_addr().expect("it is bound");
    let (server, client) = configurations();
    let (began, begun) = channel();
    let end_of = |work| on_a_thread(work, began.clone());
    let threads =
        [end_of(Work::Receive(to, server, received)), end_of(Work::Send(from, client, far))];
    let connections = [(); 2].map(|()| begun.recv_timeout(PATIENCE).expect("both ends connect"));
    // Each end by itself, as the word of the other may be lost.
    let end = move || connections.iter().for_each(|one| one.close(VarInt::from_u32(0), b""));
    (threads, end)
}

/// The work of a thread.
enum Work {
    Receive(UdpSocket, quinn::ServerConfig, Arc<AtomicU64>),
    Send(UdpSocket, quinn::ClientConfig, SocketAddr),
}

/// Does it on a thread of its own, which tells its connection when that stands.
fn on_a_thread(work: Work, began: Sender<Connection>) -> JoinHandle<()> {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("descriptors are left");
        runtime.block_on(async {
            match work {
                Work::Receive(socket, config, received) => {
                    let endpoint = endpoint(socket, Some(config));
                    let incoming = endpoint.accept().await.expect("the endpoint is not closed");
                    let connection = incoming.await.expect("the other end wants it");
                    began.send(connection.clone()).expect("somebody waits");
                    receive(&connection, &received).await;
                }
                Work::Send(socket, config, far) => {
                    let endpoint = endpoint(socket, None);
                    let connecting = endpoint.connect_with(config, far, NAME).expect("an address");
                    let connection = connecting.await.expect("the other end answers");
                    began.send(connection.clone()).expect("somebody waits");
                    send(&connection).await;
                }
            }
        });
    })
}

fn endpoint(socket: UdpSocket, server: Option<quinn::ServerConfig>) -> Endpoint {
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).expect("a UDP socket")
}

/// Until the connection ends.
async fn send(connection: &Connection) {
    let Ok(mut stream) = connection.open_uni().await else { return };
    let data = vec![0; CHUNK];
    while stream.write_all(&data).await.is_ok() {}
}

/// Until the connection ends. Counts what an application that reads in order would be given.
async fn receive(connection: &Connection, received: &AtomicU64) {
    let Ok(mut stream) = connection.accept_uni().await else { return };
    // Bytes of each chunk that came before its turn, by its place in the stream.
    let (mut given, mut ahead) = (0, BTreeMap::new());
    // Out of order, as quinn closes a connection that has 1024 gaps in what it holds back ("too
    // many gaps in stream buffer"): slow start loses more than that at 300 Mbit/s.
    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, false).await {
        ahead.insert(chunk.offset, chunk.bytes.len() as u64);
        while let Some(bytes) = ahead.remove(&given) {
            given += bytes;
        }
        received.store(given, Ordering::Relaxed);
    }
}

/// Of the server and the client, for one flow: the client knows the server's new key.
fn configurations() -> (quinn::ServerConfig, quinn::ClientConfig) {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random numbers");
    let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec());
    let key = provider::sign::any_eddsa_type(&key).expect("it was just made");
    let public = key.public_key().expect("a key of Ed25519 has one").into_owned();
    let provider = Arc::new(provider::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let certificate = CertificateDer::from(public.to_vec());
    let certified = Arc::new(CertifiedKey::new(vec![certificate], key));
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has all of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has all of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ThisKey { public, algorithms }))
        .with_no_client_auth();
    let server = QuicServerConfig::try_from(server).expect("ring has QUIC's first suite");
    let client = QuicClientConfig::try_from(client).expect("ring has QUIC's first suite");
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(server));
    let mut client = quinn::ClientConfig::new(Arc::new(client));
    let mut transport = TransportConfig::default();
    let window = VarInt::from_u32(WINDOW);
    transport.stream_receive_window(window).receive_window(window).send_window(WINDOW.into());
    let transport = Arc::new(transport);
    server.transport_config(transport.clone());
    client.transport_config(transport);
    (server, client)
}

/// Takes a server with this key and no other (RFC 7250).
#[derive(Debug)]
struct ThisKey {
    public: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ThisKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match end_entity.as_ref() == self.public.as_ref() {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &self.public, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
