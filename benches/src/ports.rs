use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Returns `count` different ports of the loopback interface.
///
/// Port 0 is of no use for programs of others, which do not report the port that the system gave
/// them. Another process may take a port before the program listens on it. The program ends in that
/// case, and its log says why.
///
/// # Errors
/// Returns the errors of the operating system.
pub(crate) fn free(count: usize) -> io::Result<Vec<u16>> {
    // All ports are held until the last one is found, so that no port appears twice.
    let listeners = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<Vec<_>>>()?;
    listeners
        .iter()
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
