// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS 1.3 with a key on both sides and no certificates: each end shows its public key as it is
//! (RFC 7250), and the other looks it up among those that it knows.
//!
//! No session is resumed and nothing is sent early, so what was recorded of one connection is of
//! no use in another.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};
use timewire_sys::event;

use crate::links::error::LinkError;
use crate::links::identity::{Fingerprint, Identity};
use crate::links::link::is_refusal;
use crate::links::peers::{Peers, Role};
use crate::links::wire::{lock, span, wait_readable};

/// What a connection is for; both ends must mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Link,
    Pairing,
}

impl Purpose {
    fn name(self) -> &'static [u8] {
        match self {
            Purpose::Link => b"timewire/1",
            Purpose::Pairing => b"timewire-pairing/1",
        }
    }
}

/// Who may be at the other end.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Anybody with a key: for pairing, which proves more afterwards.
    Anybody,
    /// One of the peers with this role.
    Paired(Peers, Role),
}

impl Wanted {
    /// The name of whom this fingerprint belongs to, if it may be there.
    pub(crate) fn accept(&self, shown: Fingerprint, peer: &str) -> Result<String, LinkError> {
        match self {
            Wanted::Anybody => Ok(String::new()),
            Wanted::Paired(peers, role) => match peers.find(*role, shown)? {
                Some(peer) => Ok(peer.name),
                None => Err(LinkError::NotPaired {
                    peer: peer.to_owned(),
                    role: role.name(),
                    fingerprint: shown,
                }),
            },
        }
    }
}

/// A session, and why the other end's key was refused if it was.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    purpose: Purpose,
    peer: String,
    found: Arc<Mutex<Option<Result<String, LinkError>>>>,
}

#[derive(Debug)]
struct Verifier {
    wanted: Wanted,
    provider: Arc<CryptoProvider>,
    peer: String,
    /// The name of whom was accepted, or why nobody was.
    found: Arc<Mutex<Option<Result<String, LinkError>>>>,
}

impl Verifier {
    fn new(wanted: Wanted, peer: &str) -> Verifier {
        let found = Arc::new(Mutex::new(None));
        Verifier { wanted, provider: provider(), peer: peer.to_owned(), found }
    }

    fn check(&self, key: &CertificateDer<'_>, more: usize) -> Result<(), rustls::Error> {
        if more > 0 {
            return Err(rustls::Error::General("more than one key was shown".to_owned()));
        }
        let accepted = self.wanted.accept(Fingerprint::of_key(key.as_ref()), &self.peer);
        let refused = accepted.is_err();
        *lock(&self.found) = Some(accepted);
        // The other end is told that access is denied.
        let denied = CertificateError::ApplicationVerificationFailure;
        if refused { Err(rustls::Error::InvalidCertificate(denied)) } else { Ok(()) }
    }
}

/// What both traits want to know about signatures; it is the same at both ends.
macro_rules! signatures_of_bare_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            let known = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, dss, known)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity, intermediates.len()).map(|()| ServerCertVerified::assertion())
    }

    signatures_of_bare_keys!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity, intermediates.len()).map(|()| ClientCertVerified::assertion())
    }

    signatures_of_bare_keys!();
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}

const AGREES: &str = "invariant: the settings agree with each other";
const SPEAKS: &str = "invariant: ring speaks TLS 1.3";

/// The end that connects.
pub(crate) fn client(
    identity: &Identity,
    purpose: Purpose,
    wanted: Wanted,
    peer: String,
) -> Session {
    let verifier = Verifier::new(wanted, &peer);
    let found = Arc::clone(&verifier.found);
    let key = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&identity.key));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect(SPEAKS)
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(key));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![purpose.name().to_vec()];
    // The name is sent to nobody and compared with nothing.
    let name = ServerName::try_from("timewire").expect("invariant: a valid name");
    let session = ClientConnection::new(Arc::new(config), name).expect(AGREES);
    Session { connection: Connection::Client(session), purpose, peer, found }
}

/// The end that listens.
pub(crate) fn server(
    identity: &Identity,
    purpose: Purpose,
    wanted: Wanted,
    peer: String,
) -> Session {
    let verifier = Verifier::new(wanted, &peer);
    let found = Arc::clone(&verifier.found);
    let key = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&identity.key));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect(SPEAKS)
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(key));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![purpose.name().to_vec()];
    let session = ServerConnection::new(Arc::new(config)).expect(AGREES);
    Session { connection: Connection::Server(session), purpose, peer, found }
}

/// Who is at the other end, and what this connection alone has.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) connection: Connection,
    pub(crate) fingerprint: Fingerprint,
    /// The name it was paired under.
    pub(crate) name: String,
    /// Derived from the keys of the connection (RFC 8446, 7.5): another connection, also one that
    /// somebody put in between, has another.
    pub(crate) binding: [u8; 32],
}

impl Session {
    /// Does the handshake on a socket that does not block, until a deadline.
    ///
    /// The end that connects does not know yet whether it was accepted; the first bytes that it
    /// receives tell.
    pub(crate) fn handshake(
        mut self,
        socket: &TcpStream,
        end: Instant,
    ) -> Result<Established, LinkError> {
        let session = &mut self.connection;
        while session.is_handshaking() || session.wants_write() {
            let done = if session.wants_write() {
                write_some(socket, session, end)
            } else {
                read_some(socket, session, end)
            };
            if let Err(error) = done {
                // An alert tells the other end why; it matters to nobody if it does not arrive.
                let _ = session.write_tls(&mut &*socket);
                return Err(match lock(&self.found).take() {
                    Some(Err(refused)) => refused,
                    _ if is_refusal(&error) => LinkError::NotTrusted,
                    _ => self.failed(error.to_string()),
                });
            }
        }
        if self.connection.alpn_protocol() != Some(self.purpose.name()) {
            return Err(self.failed("the other end wants something else".to_owned()));
        }
        let shown = self.connection.peer_certificates().and_then(|shown| shown.first());
        let shown = shown.ok_or_else(|| self.failed("the other end showed no key".to_owned()))?;
        let fingerprint = Fingerprint::of_key(shown.as_ref());
        let Some(Ok(name)) = lock(&self.found).take() else {
            return Err(self.failed("the other end's key was not looked at".to_owned()));
        };
        let label = b"EXPORTER-timewire";
        let binding = self.connection.export_keying_material([0; 32], label, None);
        let binding = binding.map_err(|error| self.failed(error.to_string()))?;
        Ok(Established { connection: self.connection, fingerprint, name, binding })
    }

    fn failed(&self, why: String) -> LinkError {
        LinkError::Handshake { peer: self.peer.clone(), why }
    }
}

fn write_some(socket: &TcpStream, session: &mut Connection, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(too_slow());
    }
    if event::wait_writable(socket.as_fd(), Some(span(left)))? {
        match session.write_tls(&mut &*socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn read_some(socket: &TcpStream, session: &mut Connection, end: Instant) -> io::Result<()> {
    if !wait_readable(socket.as_fd(), end)? || Instant::now() >= end {
        return Err(too_slow());
    }
    match session.read_tls(&mut &*socket) {
        Ok(0) => return Err(io::Error::other("the other end closed the connection")),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    let state = session.process_new_packets();
    state.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::links::scratch::Scratch;

    /// What comes of a handshake: at the end that connects, at the one that listens.
    fn shake(
        [client_of, server_of]: [&Identity; 2],
        peers: &Peers,
    ) -> [Result<Established, LinkError>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        for socket in [&to, &from] {
            socket.set_nonblocking(true).unwrap();
        }
        let wanted = |role| Wanted::Paired(peers.clone(), role);
        let client = client(client_of, Purpose::Link, wanted(Role::Agent), "agent".to_owned());
        let server = server(server_of, Purpose::Link, wanted(Role::Controller), "desk".to_owned());
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| client.handshake(&to, end));
            let listening = server.handshake(&from, end);
            // The end that connects hears of a refusal, and of nothing else, when it reads.
            from.shutdown(std::net::Shutdown::Both).unwrap();
            [connecting.join().unwrap(), listening]
        })
    }

    #[test]
    fn t3_who_shows_a_key_must_have_it() {
        let scratch = Scratch::new("tls");
        let of = |name: &str| Identity::load_or_create(&scratch.path().join(name)).unwrap();
        let (desk, agent, stranger) = (of("desk"), of("agent"), of("stranger"));
        let peers = Peers::in_directory(scratch.path());
        peers.add(Role::Controller, "desk", desk.fingerprint()).unwrap();
        peers.add(Role::Agent, "st1", agent.fingerprint()).unwrap();
        let [here, there] = shake([&desk, &agent], &peers);
        let (here, there) = (here.unwrap(), there.unwrap());
        assert_eq!((here.name.as_str(), there.name.as_str()), ("st1", "desk"));
        assert_eq!(here.binding, there.binding);
        let first = here.binding;
        let [_, there] = shake([&stranger.impostor(&desk), &agent], &peers);
        assert!(matches!(there, Err(LinkError::Handshake { .. })), "{there:?}");
        let [here, _] = shake([&desk, &stranger.impostor(&agent)], &peers);
        assert!(matches!(here, Err(LinkError::Handshake { .. })), "{here:?}");
        // Each connection has a value of its own.
        let [again, _] = shake([&desk, &agent], &peers);
        assert_ne!(again.unwrap().binding, first);
    }
}
