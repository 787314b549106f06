//! The rules for which addresses may be dialled.
//!
//! Owns: the table of special-purpose ranges and the exceptions that a user opened.
//!
//! Invariants: an address that is not known to be public unicast is refused. An IPv6 address that
//! embeds IPv4 addresses is treated like the worst of them.
//!
//! Must not know: names, URLs and sockets. The dialler resolves first, checks, and dials exactly
//! the checked addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Decides which addresses may be dialled.
///
/// By default only public unicast addresses are allowed. [`AddressGuard::allow_private`] opens
/// loopback and private ranges. [`AddressGuard::allow_network`] opens one network.
///
/// Link-local addresses and cloud metadata services hand out credentials to any client. They stay
/// closed under `allow_private`. A network opens them only if it lies within such a range itself,
/// so `0.0.0.0/0` or `10.0.0.0/8` never opens them by accident.
///
/// Cost of a check: a scan of about forty ranges in memory.
///
/// ```
/// use fetchwise_fetchers::fetch::address_guard::{AddressGuard, parse_network};
///
/// let guard = AddressGuard::default();
/// assert!(guard.check("93.184.215.14".parse()?).is_ok());
/// assert!(guard.check("127.0.0.1".parse()?).is_err());
/// assert!(guard.check("::ffff:10.0.0.1".parse()?).is_err());
///
/// let mut guard = AddressGuard::default();
/// guard.allow_network(parse_network("10.1.0.0/16")?);
/// assert!(guard.check("10.1.2.3".parse()?).is_ok());
/// assert!(guard.check("10.2.2.3".parse()?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGuard {
    allow_networks: Vec<IpNet>,
    allow_private: bool,
}

impl AddressGuard {
    /// Returns a guard that opens `networks`, and loopback and private ranges if `allow_private` is
    /// set.
    pub fn new(networks: impl IntoIterator<Item = IpNet>, allow_private: bool) -> Self {
        Self { allow_networks: networks.into_iter().collect(), allow_private }
    }

    /// Opens one network.
    pub fn allow_network(&mut self, network: IpNet) {
        self.allow_networks.push(network);
    }

    /// Opens or closes loopback and private ranges: RFC 1918, shared address space (100.64.0.0/10),
    /// unique local IPv6.
    pub fn allow_private(&mut self, allow: bool) {
        self.allow_private = allow;
    }

    /// Checks whether `address` may be dialled. The error holds the class of a refused address.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let refuse = |class| AddressRefused { address, class };
        // A mapped address is the IPv4 address: the socket dials the same host.
        match address.to_canonical() {
            IpAddr::V4(v4) => self.open(v4.into(), class_of_v4(v4)).map_err(refuse),
            IpAddr::V6(v6) => match embedded(v6) {
                None => self.open(v6.into(), class_of_v6(v6)).map_err(refuse),
                Some(inner) => inner.into_iter().flatten().try_for_each(|v4| {
                    let class = class_of_v4(v4);
                    // Opening the IPv6 network of a translator or tunnel also opens the addresses
                    // behind it.
                    self.open(v4.into(), class)
                        .or_else(|class| self.open(v6.into(), class))
                        .map_err(refuse)
                }),
            },
        }
    }

    fn open(&self, address: IpAddr, class: AddressClass) -> Result<(), AddressClass> {
        let by_default = match class {
            AddressClass::Public => true,
            AddressClass::Loopback | AddressClass::Private => self.allow_private,
            _ => false,
        };
        if by_default || self.is_opened(address, class) { Ok(()) } else { Err(class) }
    }

    fn is_opened(&self, address: IpAddr, class: AddressClass) -> bool {
        self.allow_networks.iter().any(|network| {
            network.contains(&address)
                && match class {
                    AddressClass::LinkLocal | AddressClass::Metadata => {
                        lies_in_guarded_range(network)
                    }
                    _ => true,
                }
        })
    }
}

/// Parses a network in CIDR notation, or a single address, which stands for itself only.
///
/// # Errors
/// [`InvalidNetwork`] for any other text, which it names.
pub fn parse_network(text: &str) -> Result<IpNet, InvalidNetwork> {
    let text = text.trim();
    IpNet::from_str(text)
        .or_else(|_| IpAddr::from_str(text).map(IpNet::from))
        .map_err(|_| InvalidNetwork { text: text.chars().take(100).collect() })
}

/// Text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a network: expected CIDR notation such as 10.0.0.0/8 or fd00::/8, or one address"
)]
pub struct InvalidNetwork {
    text: String,
}

/// An address that may not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {class} and may not be dialled")]
pub struct AddressRefused {
    /// Requested address, with its IPv6 wrapping.
    pub address: IpAddr,
    /// Class of the address, or of the address embedded in it.
    pub class: AddressClass,
}

/// Purpose of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressClass {
    /// Public unicast, which may be dialled.
    Public,
    /// This machine.
    Loopback,
    /// A network that is not routed on the internet.
    Private,
    /// Valid on one link only.
    LinkLocal,
    /// Metadata service of a cloud.
    Metadata,
    /// "This host", which dials loopback on most systems.
    Unspecified,
    /// Multicast or broadcast.
    Multicast,
    /// Reserved for documentation, benchmarks, protocols or the future.
    Reserved,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a metadata service's address",
            Self::Unspecified => "an unspecified address",
            Self::Multicast => "a multicast or broadcast address",
            Self::Reserved => "a reserved address",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// IANA's special-purpose IPv4 registry, and metadata services. The first match counts.
const V4_TABLE: &[(Ipv4Net, AddressClass)] = &[
    (v4(100, 100, 100, 200, 32), AddressClass::Metadata), // Alibaba Cloud
    (v4(168, 63, 129, 16, 32), AddressClass::Metadata),   // Azure's wire server
    (v4(192, 0, 0, 192, 32), AddressClass::Metadata),     // Oracle Cloud, older images
    (v4(169, 254, 0, 0, 16), AddressClass::LinkLocal), // 169.254.169.254 serves nearly all clouds' metadata
    (v4(0, 0, 0, 0, 8), AddressClass::Unspecified),
    (v4(10, 0, 0, 0, 8), AddressClass::Private),
    (v4(100, 64, 0, 0, 10), AddressClass::Private), // shared address space (carrier-grade NAT)
    (v4(127, 0, 0, 0, 8), AddressClass::Loopback),
    (v4(172, 16, 0, 0, 12), AddressClass::Private),
    (v4(192, 0, 0, 0, 24), AddressClass::Reserved), // protocol assignments
    (v4(192, 0, 2, 0, 24), AddressClass::Reserved), // documentation
    (v4(192, 88, 99, 0, 24), AddressClass::Reserved), // 6to4 relays, withdrawn
    (v4(192, 168, 0, 0, 16), AddressClass::Private),
    (v4(198, 18, 0, 0, 15), AddressClass::Reserved), // benchmarks
    (v4(198, 51, 100, 0, 24), AddressClass::Reserved), // documentation
    (v4(203, 0, 113, 0, 24), AddressClass::Reserved), // documentation
    (v4(224, 0, 0, 0, 4), AddressClass::Multicast),
    (v4(255, 255, 255, 255, 32), AddressClass::Multicast), // broadcast
    (v4(240, 0, 0, 0, 4), AddressClass::Reserved),
];

/// The same for IPv6. An address without a match is reserved: only 2000::/3 is assigned to the
/// internet.
const V6_TABLE: &[(Ipv6Net, AddressClass)] = &[
    (v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254], 128), AddressClass::Metadata), // AWS
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), AddressClass::Metadata),   // Google Cloud
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), AddressClass::Unspecified),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), AddressClass::Loopback),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), AddressClass::LinkLocal),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), AddressClass::Private), // site-local, deprecated
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), AddressClass::Private),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), AddressClass::Multicast),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), AddressClass::Reserved), // protocol assignments, benchmarks, ORCHID
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), AddressClass::Reserved), // documentation
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), AddressClass::Reserved), // documentation
    (v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), AddressClass::Public),
];

fn class_of_v4(address: Ipv4Addr) -> AddressClass {
    let found = V4_TABLE.iter().find(|(network, _)| network.contains(&address));
    found.map_or(AddressClass::Public, |&(_, class)| class)
}

fn class_of_v6(address: Ipv6Addr) -> AddressClass {
    let found = V6_TABLE.iter().find(|(network, _)| network.contains(&address));
    found.map_or(AddressClass::Reserved, |&(_, class)| class)
}

/// Returns whether a network that a user named lies in a range that only such a network opens.
fn lies_in_guarded_range(network: &IpNet) -> bool {
    let guarded = |class| matches!(class, AddressClass::LinkLocal | AddressClass::Metadata);
    match network {
        IpNet::V4(n) => V4_TABLE.iter().any(|(range, class)| guarded(*class) && range.contains(n)),
        IpNet::V6(n) => V6_TABLE.iter().any(|(range, class)| guarded(*class) && range.contains(n)),
    }
}

/// Returns the IPv4 addresses that an IPv6 address embeds and that a translator or tunnel would
/// dial.
fn embedded(address: Ipv6Addr) -> Option<[Option<Ipv4Addr>; 2]> {
    let s = address.segments();
    let at = |i: usize| {
        let ([a, b], [c, d]) = (s[i].to_be_bytes(), s[i + 1].to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        // :: and ::1 stand for themselves; they are not IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-compatible, and translated (RFC 2765).
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some([Some(at(6)), None]),
        // NAT64's well-known prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some([Some(at(6)), None]),
        // 6to4.
        [0x2002, ..] => Some([Some(at(1)), None]),
        // Teredo: the server, and the client's address with every bit inverted.
        [0x2001, 0, ..] => Some([Some(at(2)), Some(Ipv4Addr::from_bits(!at(6).to_bits()))]),
        // ISATAP's interface identifier, with any global prefix; local prefixes stand for
        // themselves.
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, _, _]
            if class_of_v6(address) == AddressClass::Public =>
        {
            Some([Some(at(6)), None])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    /// Returns what the standard library knows to be non-public, as an independent oracle.
    fn std_refuses(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => {
                a.is_private()
                    || a.is_loopback()
                    || a.is_link_local()
                    || a.is_broadcast()
                    || a.is_documentation()
                    || a.is_multicast()
                    || a.is_unspecified()
            }
            IpAddr::V6(a) => {
                a.is_loopback()
                    || a.is_unspecified()
                    || a.is_multicast()
                    || a.is_unique_local()
                    || a.is_unicast_link_local()
                    || a.to_ipv4_mapped().is_some_and(|v4| std_refuses(v4.into()))
            }
        }
    }

    /// Any address, more often one near the special ranges.
    fn addresses() -> impl Strategy<Value = IpAddr> {
        let edges =
            V4_TABLE.iter().flat_map(|(n, _)| [u32::from(n.network()), u32::from(n.broadcast())]);
        let edges: Vec<u32> =
            edges.flat_map(|a| [a.wrapping_sub(1), a, a.wrapping_add(1)]).collect();
        let v4 =
            prop_oneof![any::<u32>(), proptest::sample::select(edges)].prop_map(Ipv4Addr::from);
        let prefix = proptest::sample::select(vec![
            0,
            0xffff << 32,
            0x64_ff9b << 96,
            0xfe80 << 112,
            0xfd00 << 112,
        ]);
        prop_oneof![
            v4.clone().prop_map(IpAddr::V4),
            (prefix, v4)
                .prop_map(|(p, v4)| IpAddr::V6(Ipv6Addr::from(p | u128::from(v4.to_bits())))),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        ]
    }

    proptest! {
        #[test]
        fn addresses_that_the_standard_library_knows_as_special_are_refused(address in addresses()) {
            prop_assert!(!std_refuses(address) || AddressGuard::default().check(address).is_err());
        }

        #[test]
        fn wrapping_an_address_never_opens_it(address in any::<u32>(), prefix in 0..3_usize, private in any::<bool>()) {
            let (v4, guard) = (Ipv4Addr::from(address), AddressGuard::new([], private));
            let prefix = [0, 0xffff_u128 << 32, 0x64_ff9b << 96][prefix];
            let wrapped = Ipv6Addr::from(prefix | u128::from(address));
            // ::0.0.0.0 and ::0.0.0.1 are the unspecified and the loopback address.
            if address > 1 {
                prop_assert_eq!(guard.check(wrapped.into()).is_ok(), guard.check(v4.into()).is_ok());
            }
        }

        #[test]
        fn opening_a_network_changes_nothing_outside_of_it(address in addresses(), net in addresses(), len in 0..=32_u8) {
            let net = IpNet::new(net, len).unwrap();
            let (opened, shut) = (AddressGuard::new([net], false), AddressGuard::default());
            let carries = |v6| embedded(v6).is_some_and(|all| all.iter().flatten().any(|v4| net.contains(&IpAddr::V4(*v4))));
            let inside = net.contains(&address)
                || net.contains(&address.to_canonical())
                || matches!(address, IpAddr::V6(v6) if carries(v6));
            if !inside {
                prop_assert_eq!(opened.check(address), shut.check(address));
            }
        }
    }

    fn class(guard: &AddressGuard, text: &str) -> Option<AddressClass> {
        guard.check(text.parse().unwrap()).err().map(|refused| refused.class)
    }

    fn guard(networks: &[&str], allow_private: bool) -> AddressGuard {
        AddressGuard::new(networks.iter().map(|n| parse_network(n).unwrap()), allow_private)
    }

    #[test]
    fn public_addresses_may_be_dialled() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::6810:84e5",
            "2a00:1450:4001:81b::200e",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:0101:0101::1",
        ] {
            assert_eq!(class(&AddressGuard::default(), text), None, "{text}");
        }
    }

    #[test]
    fn everything_that_is_not_public_is_refused_by_default() {
        use AddressClass::*;
        for (text, expected) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("fec0::1", Private),
            ("169.254.169.254", LinkLocal),
            ("169.254.0.1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fd00:ec2::254", Metadata),
            ("fd20:ce::254", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("192.0.0.192", Metadata),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("::", Unspecified),
            ("224.0.0.1", Multicast),
            ("239.255.255.250", Multicast),
            ("255.255.255.255", Multicast),
            ("ff02::1", Multicast),
            ("192.0.2.1", Reserved),
            ("198.51.100.1", Reserved),
            ("203.0.113.1", Reserved),
            ("198.18.0.1", Reserved),
            ("198.19.255.255", Reserved),
            ("240.0.0.1", Reserved),
            ("192.88.99.1", Reserved),
            ("2001:db8::1", Reserved),
            ("2001:2::1", Reserved),
            ("3fff::1", Reserved),
            ("100::1", Reserved),
            ("64:ff9b:1::1", Reserved),
            ("4000::1", Reserved),
        ] {
            // 224.0.0.0/4 ends at 239; 255.255.255.255 must not fall through to 240.0.0.0/4.
            assert_eq!(class(&AddressGuard::default(), text), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_does_not_hide_in_an_ipv6_one() {
        use AddressClass::*;
        for (text, expected) in [
            ("::ffff:127.0.0.1", Loopback),
            ("::127.0.0.1", Loopback),
            ("::ffff:0:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", LinkLocal),
            ("::ffff:0.0.0.0", Unspecified),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::169.254.169.254", LinkLocal),
            ("2002:7f00:1::1", Loopback),
            ("2002:a9fe:a9fe::", LinkLocal),
            // Teredo: server 10.0.0.1; then server 1.1.1.1 with client 127.0.0.1.
            ("2001:0:a00:1::", Private),
            ("2001:0:101:101:0:0:80ff:fffe", Loopback),
            ("2606:4700::5efe:192.168.0.1", Private),
            ("2606:4700::200:5efe:10.0.0.1", Private),
        ] {
            let guard = AddressGuard::default();
            assert_eq!(class(&guard, text), Some(expected), "{text}");
            let address = text.parse().unwrap();
            assert_eq!(
                guard.check(address).unwrap_err().address,
                address,
                "the refusal names what was asked for"
            );
        }
    }

    #[test]
    fn allow_private_opens_loopback_and_private_ranges_and_nothing_else() {
        let guard = guard(&[], true);
        for text in [
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(class(&guard, text), None, "{text}");
        }
        for text in [
            "169.254.169.254",
            "169.254.1.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "192.0.0.192",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "203.0.113.1",
            "240.0.0.1",
        ] {
            assert!(class(&guard, text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_network_opens_itself_exactly() {
        let guard = guard(&["127.0.0.1", "10.1.0.0/16", "fd00:1::/32", "64:ff9b::/96"], false);
        for text in [
            "127.0.0.1",
            "10.1.0.0",
            "10.1.255.255",
            "::ffff:10.1.2.3",
            "fd00:1::9",
            "64:ff9b::10.9.9.9",
        ] {
            assert_eq!(class(&guard, text), None, "{text}");
        }
        for text in ["127.0.0.2", "10.0.255.255", "10.2.0.0", "fd00:2::9", "::1", "169.254.169.254"]
        {
            assert!(class(&guard, text).is_some(), "{text}");
        }
    }

    #[test]
    fn link_local_opens_only_by_its_own_network() {
        for wide in [
            guard(&["0.0.0.0/0", "::/0"], true),
            guard(&["169.0.0.0/8", "100.0.0.0/8", "fd00::/8"], false),
        ] {
            for text in [
                "169.254.169.254",
                "::ffff:169.254.169.254",
                "fe80::1",
                "fd00:ec2::254",
                "100.100.100.200",
            ] {
                assert!(class(&wide, text).is_some(), "{text}");
            }
        }
        let named = guard(&["169.254.169.254/32", "fe80::/10", "100.100.100.200"], false);
        for text in ["169.254.169.254", "fe80::1", "100.100.100.200"] {
            assert_eq!(class(&named, text), None, "{text}");
        }
        assert!(class(&named, "169.254.1.1").is_some());
    }

    #[test]
    fn the_error_names_text_that_is_not_a_network() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "example.com", "fe80::1%eth0"] {
            let error = parse_network(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10.0.0.0/8"), "{error}");
        }
        assert_eq!(parse_network(" 10.0.0.5/8 ").unwrap().to_string(), "10.0.0.5/8");
        assert_eq!(parse_network("::1").unwrap().to_string(), "::1/128");
    }
}
