//! Addresses that servers listen at: those of several targets behind the first one, and who can reach them.

use forebay_command::error::{CliError, CliResult};
use forebay_env::Address;

/// The address of the target number `number`, if the first listens at `address`.
pub fn nth(address: &Address, number: usize) -> CliResult<Address> {
    match address {
        _ if number == 0 => Ok(address.clone()),
        Address::Tcp(text) => {
            let (host, port) = split_port(text)?;
            let port = if port == 0 { Some(0) } else { u16::try_from(number).ok().and_then(|n| port.checked_add(n)) };
            let port =
                port.ok_or_else(|| CliError::usage(format!("{address}: there are not enough ports behind it")))?;
            Ok(Address::Tcp(format!("{host}:{port}")))
        }
        _ => Err(CliError::usage(format!("{address} cannot be shared by several targets; use --map or tcp:HOST:PORT"))),
    }
}

/// The addresses of each of `count` targets, if the first one listens at all of these.
pub fn of_targets(first: &[Address], count: usize) -> CliResult<Vec<Vec<Address>>> {
    first.iter().try_for_each(refuse_unspecified)?;
    if first.len() > forebay_rpc::limits::RAILS {
        return Err(CliError::usage(format!(
            "--listen: a target has {} addresses at most",
            forebay_rpc::limits::RAILS
        )));
    }
    let of_each: Vec<Vec<Address>> = (0..count)
        .map(|number| first.iter().map(|address| nth(address, number)).collect())
        .collect::<CliResult<_>>()?;
    let mut seen = std::collections::BTreeSet::new();
    match of_each.iter().flatten().find(|address| !seen.insert(*address)) {
        Some(twice) => Err(CliError::usage(format!(
            "--listen: {twice} would be the address of two: each target takes the next port of each address"
        ))),
        None => Ok(of_each),
    }
}

fn split_port(text: &str) -> CliResult<(&str, u16)> {
    let wrong = || CliError::usage(format!("'{text}' is not HOST:PORT"));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    Ok((host, port.parse().map_err(|_| wrong())?))
}

/// True if only this machine can reach it. Errors: it is not an address.
pub fn is_loopback(address: &Address) -> CliResult<bool> {
    let Address::Tcp(text) = address else { return Ok(true) };
    let (host, _) = split_port(text)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

/// Refuses addresses that no client can connect to.
pub fn refuse_unspecified(address: &Address) -> CliResult {
    let Address::Tcp(text) = address else { return Ok(()) };
    let (host, _) = split_port(text)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        true => Err(CliError::usage(format!("{address}: clients are told this address; name the one that they reach"))),
        false => Ok(()),
    }
}

/// Refuses the port 0, which is another one at each start: nobody would find it.
pub fn refuse_any_port(address: &Address) -> CliResult {
    match address {
        Address::Tcp(text) if split_port(text)?.1 == 0 => {
            Err(CliError::usage(format!("{address}: clients are told this address; give a port")))
        }
        _ => Ok(()),
    }
}

/// Refuses addresses that other machines can reach: without keys a server trusts every client that connects.
pub fn refuse_beyond_loopback(address: &Address) -> CliResult {
    if is_loopback(address)? {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{address} can be reached from other machines, and without keys a server cannot tell who calls: leave \
         --insecure-loopback out, or listen at 127.0.0.1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_targets_take_the_ports_behind_the_first() {
        let first = Address::Tcp("127.0.0.1:7700".into());
        assert_eq!(nth(&first, 0).expect("an address"), first);
        assert_eq!(nth(&first, 2).expect("an address"), Address::Tcp("127.0.0.1:7702".into()));
        assert_eq!(nth(&Address::Tcp("[::1]:0".into()), 2).expect("an address"), Address::Tcp("[::1]:0".into()));
        assert!(nth(&Address::Tcp("127.0.0.1:65535".into()), 1).is_err());
        assert!(nth(&Address::Unix("/x".into()), 1).expect_err("one socket").message.contains("--map"));
    }

    #[test]
    fn each_target_listens_in_all_networks_and_no_address_counts_twice() {
        let first: [Address; 2] = ["10.0.0.1:7700", "10.1.0.1:7700"].map(|text| text.parse().expect("an address"));
        let shown = |addresses: &Vec<Address>| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ");
        let both: Vec<String> = of_targets(&first, 2).expect("two targets").iter().map(shown).collect();
        assert_eq!(both, ["tcp:10.0.0.1:7700 tcp:10.1.0.1:7700", "tcp:10.0.0.1:7701 tcp:10.1.0.1:7701"]);
        let twice = [first[0].clone(), first[0].clone()];
        assert!(of_targets(&twice, 1).expect_err("the same").message.contains("of two"));
        let overlapping = ["10.0.0.1:7700", "10.0.0.1:7701"].map(|text| text.parse().expect("an address"));
        assert!(of_targets(&overlapping, 1).is_ok() && of_targets(&overlapping, 2).is_err());
        let unspecified = ["0.0.0.0:1".parse().expect("an address")];
        assert!(of_targets(&unspecified, 1).is_err());
    }

    #[test]
    fn listening_beyond_loopback_is_refused_with_words() {
        for good in ["tcp:127.0.0.1:1", "tcp:[::1]:1", "tcp:localhost:1", "unix:/x", "127.0.0.5:9"] {
            refuse_beyond_loopback(&good.parse().expect(good)).expect(good);
        }
        for bad in ["tcp:0.0.0.0:1", "tcp:mds1:7700", "tcp:10.0.0.1:1", "tcp:[::]:1"] {
            let error = refuse_beyond_loopback(&bad.parse().expect(bad)).expect_err(bad);
            assert!(error.message.contains("--insecure-loopback") && error.exit_code() == 2, "{error}");
        }
    }
}
