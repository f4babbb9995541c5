//! Ports that nobody listens on.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// So many ports of the loopback interface, each another one.
///
/// Ballista's programs are told their ports and do not say which one they were given, so that port 0 is of no use. Until one of them listens
/// another process may take its port; the program ends then, and its log says why.
///
/// # Errors
/// Those of the operating system.
pub(super) fn free(count: usize) -> io::Result<Vec<u16>> {
    // All are held before the first one is given back.
    let held = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<Vec<_>>>()?;
    held.iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_comes_twice() {
        let ports = free(20).unwrap();
        let different: BTreeSet<_> = ports.iter().collect();
        assert_eq!((ports.len(), different.len()), (20, 20));
        assert!(!ports.contains(&0));
    }
}
