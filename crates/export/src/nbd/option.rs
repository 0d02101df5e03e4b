//! Options of the handshake, parsed from bytes. Section "Option types".
//!
//! Invariant: pure functions; any bytes give an option or an [`Error`].

use super::wire::{BASE_ALLOCATION, BASE_WILDCARD, Fields, OPTION_HEADER_BYTES, OPTION_MAGIC, opt, string};

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub option: u32,
    /// Length of its data.
    pub bytes: u32,
}

impl Header {
    /// Parses a header; nothing when it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Header> {
        let mut fields = Fields(bytes);
        if fields.u64()? != OPTION_MAGIC {
            return None;
        }
        Some(Header { option: fields.u32()?, bytes: fields.u32()? })
    }
}

/// An option that we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Choose an export; any failure closes the connection.
    ExportName(&'a str),
    /// End.
    Abort,
    /// Names of the exports.
    List,
    /// Describe an export, and with `go` begin transmission.
    Info {
        /// The export.
        name: &'a str,
        /// Information types that are asked for.
        requests: Requests,
        /// `OPT_GO` rather than `OPT_INFO`.
        go: bool,
    },
    /// Structured replies.
    StructuredReply,
    /// Metadata contexts of an export, chosen with `set`.
    MetaContext {
        /// The export.
        name: &'a str,
        /// Whether `base:allocation` is among the queries.
        allocation: bool,
        /// `OPT_SET_META_CONTEXT` rather than `OPT_LIST_META_CONTEXT`.
        set: bool,
    },
}

/// Which information a client asks for, of the kinds that are optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `INFO_NAME`.
    pub name: bool,
    /// `INFO_DESCRIPTION`.
    pub description: bool,
    /// `INFO_BLOCK_SIZE`.
    pub block_size: bool,
}

/// Why an option is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// `REP_ERR_UNSUP`.
    Unsupported,
    /// `REP_ERR_INVALID`.
    Invalid,
}

/// Parses the data of an option.
///
/// # Errors
/// [`Error::Unsupported`] for options that we do not know or do not have (TLS, extended headers); [`Error::Invalid`]
/// for data that does not fit the option.
pub fn parse(option: u32, data: &[u8]) -> Result<Message<'_>, Error> {
    let empty = |option| {
        if data.is_empty() { Ok(option) } else { Err(Error::Invalid) }
    };
    match option {
        opt::EXPORT_NAME => Ok(Message::ExportName(string(data).ok_or(Error::Invalid)?)),
        // "a server SHOULD ignore any data sent by the client"
        opt::ABORT => Ok(Message::Abort),
        opt::LIST => empty(Message::List),
        opt::STRUCTURED_REPLY => empty(Message::StructuredReply),
        opt::INFO | opt::GO => parse_info(data, option == opt::GO).ok_or(Error::Invalid),
        opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
            parse_meta_context(data, option == opt::SET_META_CONTEXT).ok_or(Error::Invalid)
        }
        // "NOTLS mode": UNSUP when the server has no TLS; a client's malformed request for it is still malformed.
        opt::STARTTLS if !data.is_empty() => Err(Error::Invalid),
        _ => Err(Error::Unsupported),
    }
}

fn parse_info(data: &[u8], go: bool) -> Option<Message<'_>> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let mut requests = Requests::default();
    for _ in 0..fields.u16()? {
        match fields.u16()? {
            super::wire::info::NAME => requests.name = true,
            super::wire::info::DESCRIPTION => requests.description = true,
            super::wire::info::BLOCK_SIZE => requests.block_size = true,
            // "The server MUST ignore any information requests it does not understand"; INFO_EXPORT is always sent.
            _ => {}
        }
    }
    fields.is_empty().then_some(Message::Info { name, requests, go })
}

fn parse_meta_context(data: &[u8], set: bool) -> Option<Message<'_>> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let queries = fields.u32()?;
    // "If zero queries are sent" list means all and set means none.
    let mut allocation = queries == 0 && !set;
    for _ in 0..queries {
        let query = fields.string()?;
        allocation |= query == BASE_ALLOCATION || query == BASE_WILDCARD && !set;
    }
    fields.is_empty().then_some(Message::MetaContext { name, allocation, set })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &str, rest: &[u8]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(rest);
        data
    }

    fn queries(queries: &[&str]) -> Vec<u8> {
        let mut data = (queries.len() as u32).to_be_bytes().to_vec();
        queries.iter().for_each(|q| data.extend(named(q, &[])));
        data
    }

    #[test]
    fn headers() {
        let mut bytes = [0; OPTION_HEADER_BYTES];
        assert_eq!(Header::parse(&bytes), None);
        bytes[..8].copy_from_slice(b"IHAVEOPT");
        bytes[11] = 7;
        bytes[15] = 9;
        assert_eq!(Header::parse(&bytes), Some(Header { option: 7, bytes: 9 }));
    }

    #[test]
    fn info_and_go() {
        let data = named("vol", &[0, 3, 0, 1, 0, 3, 0x12, 0x34]);
        let requests = Requests { name: true, block_size: true, description: false };
        assert_eq!(parse(opt::INFO, &data), Ok(Message::Info { name: "vol", requests, go: false }));
        assert_eq!(parse(opt::GO, &data), Ok(Message::Info { name: "vol", requests, go: true }));
        for short in 0..data.len() {
            assert_eq!(parse(opt::GO, &data[..short]), Err(Error::Invalid), "{short} bytes");
        }
        assert_eq!(parse(opt::GO, &[&data[..], &[0]].concat()), Err(Error::Invalid), "trailing bytes");
    }

    #[test]
    fn lengths_that_lie() {
        let mut data = named("vol", &[0, 0]);
        data[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(parse(opt::GO, &data), Err(Error::Invalid));
        let data = named("vol", &u32::MAX.to_be_bytes());
        assert_eq!(parse(opt::SET_META_CONTEXT, &data), Err(Error::Invalid));
    }

    #[test]
    fn meta_contexts() {
        for (list, in_list, in_set) in [
            (&[][..], true, false),
            (&["base:"], true, false),
            (&["base:allocation"], true, true),
            (&["x-other:thing", "base:allocation"], true, true),
            (&["base:nothing", "qemu:dirty-bitmap:a"], false, false),
        ] {
            let data = named("vol", &queries(list));
            for (set, allocation) in [(false, in_list), (true, in_set)] {
                let option = if set { opt::SET_META_CONTEXT } else { opt::LIST_META_CONTEXT };
                assert_eq!(parse(option, &data), Ok(Message::MetaContext { name: "vol", allocation, set }), "{list:?}");
            }
        }
    }

    #[test]
    fn options_without_data_take_none() {
        for option in [opt::LIST, opt::STRUCTURED_REPLY, opt::STARTTLS] {
            assert_eq!(parse(option, &[0]), Err(Error::Invalid));
        }
        assert_eq!(parse(opt::ABORT, &[0]), Ok(Message::Abort));
        assert_eq!(parse(opt::STARTTLS, &[]), Err(Error::Unsupported));
        assert_eq!(parse(opt::EXTENDED_HEADERS, &[]), Err(Error::Unsupported));
        assert_eq!(parse(4711, &[1, 2, 3]), Err(Error::Unsupported));
    }

    #[test]
    fn names_are_strings() {
        assert_eq!(parse(opt::EXPORT_NAME, b""), Ok(Message::ExportName("")));
        assert_eq!(parse(opt::EXPORT_NAME, &[0xff, 0xfe]), Err(Error::Invalid));
        assert_eq!(parse(opt::EXPORT_NAME, b"a\0"), Err(Error::Invalid));
        assert_eq!(parse(opt::EXPORT_NAME, &[b'a'; 4097]), Err(Error::Invalid));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(option in 0..16u32, data: Vec<u8>, header: [u8; OPTION_HEADER_BYTES]) {
            let _ = parse(option, &data);
            let _ = Header::parse(&header);
        }
    }
}
