//! PDUs: round trips, and headers that lie.

use proptest::prelude::*;

use super::*;

fn terms(header_digest: bool, data_digest: bool, alignment: u32) -> Terms {
    Terms { header_digest, data_digest, alignment, r2ts_max: 1 }
}

fn common_of(bytes: &[u8]) -> Common {
    Common::parse(bytes.first_chunk().unwrap())
}

#[test]
fn what_is_written_passes_the_check_and_lies_where_it_says() {
    let data = [Bytes::from_slice(&[1; 512]), Bytes::from_slice(&[2; 1024])];
    for (kind, to, specific) in
        [(kind::CAPSULE_CMD, To::Controller, 64), (kind::H2C_DATA, To::Controller, 16), (kind::C2H_DATA, To::Host, 16)]
    {
        for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
            for alignment in [4, 8, 64, 128] {
                let terms = terms(header_digest, data_digest, alignment);
                let pdu = encode(kind, 0, &vec![7; specific], &data, to, &terms);
                let whole = [&pdu.head[..], &data[0], &data[1], &pdu.tail].concat();
                let common = common_of(&whole);
                let frame = check(&common, to, &terms).unwrap();
                assert_eq!(common.bytes as usize, whole.len());
                assert_eq!((frame.data, frame.data_digest), (1536, data_digest));
                let at = usize::from(common.data_offset);
                assert_eq!(at, pdu.head.len());
                assert_eq!(whole[at..at + 1536], [&data[0][..], &data[1]].concat());
                let header = usize::from(common.header_bytes);
                if header_digest {
                    assert_eq!(u32_at(&whole, header), digest(&whole[..header]));
                }
                if data_digest {
                    assert_eq!(u32_at(&whole, at + 1536), digest(&whole[at..at + 1536]));
                }
                if to == To::Host {
                    assert!(at.is_multiple_of(alignment as usize));
                }
            }
        }
    }
}

#[test]
fn a_pdu_without_data_has_no_data_digest() {
    let terms = terms(true, true, 4);
    let pdu = encode(kind::CAPSULE_RESP, 0, &[0; 16], &[], To::Host, &terms);
    assert_eq!((pdu.head.len(), pdu.tail.len()), (28, 0));
    let frame = check(&common_of(&pdu.head), To::Host, &terms).unwrap();
    assert_eq!(frame, Frame { padding: 0, data: 0, data_digest: false });
}

#[test]
fn wrong_headers_name_the_field() {
    let plain = terms(false, false, 4);
    let digests = terms(true, true, 4);
    let command = Common { kind: kind::CAPSULE_CMD, flags: 0, header_bytes: 72, data_offset: 72, bytes: 72 + 512 };
    let both = Common { flags: 3, data_offset: 76, bytes: 76 + 512 + 4, ..command };
    assert_eq!(check(&command, To::Controller, &plain).map(|f| f.data), Ok(512));
    assert_eq!(check(&both, To::Controller, &digests).map(|f| f.data), Ok(512));
    let invalid = |at| Err(Fatal::field(at));
    let limit = Err(Fatal { fes: Fes::LimitExceeded, information: 4 });
    let sequence = Err(Fatal::sequence());
    for (name, common, terms, expected) in [
        ("a type that does not exist", Common { kind: 8, ..command }, plain, invalid(0)),
        ("another that does not exist", Common { kind: 0xff, ..command }, plain, invalid(0)),
        ("a response to a controller", Common { kind: kind::CAPSULE_RESP, ..command }, plain, sequence),
        ("an R2T to a controller", Common { kind: kind::R2T, ..command }, plain, sequence),
        ("an ICReq where none may come", Common { kind: kind::IC_REQ, ..command }, plain, sequence),
        ("a header digest not agreed on", Common { flags: 1, ..command }, plain, invalid(1)),
        ("no header digest", Common { flags: 2, ..both }, digests, invalid(1)),
        ("no data digest", Common { flags: 1, ..both }, digests, invalid(1)),
        ("a data digest not agreed on", Common { flags: 2, ..command }, plain, invalid(1)),
        ("another header length", Common { header_bytes: 71, ..command }, plain, invalid(2)),
        ("no header", Common { header_bytes: 0, ..command }, plain, invalid(2)),
        ("data within the header", Common { data_offset: 68, ..command }, plain, invalid(3)),
        ("data at nothing", Common { data_offset: 0, ..command }, plain, invalid(3)),
        ("data within the digest", Common { data_offset: 72, ..both }, digests, invalid(3)),
        ("data not aligned", Common { data_offset: 73, ..command }, plain, invalid(3)),
        ("shorter than its header", Common { bytes: 71, ..command }, plain, invalid(4)),
        ("of no length", Common { bytes: 0, ..command }, plain, invalid(4)),
        ("padding and no data", Common { data_offset: 76, bytes: 76, ..command }, plain, invalid(4)),
        ("shorter than its padding", Common { data_offset: 200, bytes: 100, ..command }, plain, invalid(4)),
        ("no room for the data digest", Common { bytes: 76 + 4, ..both }, digests, invalid(4)),
        ("more than a capsule holds", Common { bytes: 72 + IO_CAPSULE_DATA_MAX + 4, ..command }, plain, limit),
        ("4 GiB", Common { bytes: u32::MAX, ..command }, plain, limit),
    ] {
        assert_eq!(check(&common, To::Controller, &terms), expected, "{name}");
    }
}

#[test]
fn connections_are_initialized_once_and_as_agreed() {
    let request = Initialize { version: 0, alignment: 3, digests: 2, limit: 7 };
    let bytes = request.encode(kind::IC_REQ);
    let parse = |bytes: &[u8]| Initialize::parse(kind::IC_REQ, &common_of(bytes), bytes[8..].try_into().unwrap());
    assert_eq!(parse(&bytes), Ok(request));
    for (at, value, expected) in [
        (0, kind::CAPSULE_CMD, Fatal::sequence()),
        (2, 127, Fatal::field(2)),
        (4, 0, Fatal::field(4)),
        (6, 1, Fatal::field(4)),
        (8, 1, Fatal { fes: Fes::Unsupported, information: 8 }),
        (10, 32, Fatal::field(10)),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        assert_eq!(parse(&wrong), Err(expected), "byte {at}");
    }
}

#[test]
fn terminations_carry_the_header_in_error() {
    let fatal = Fatal { fes: Fes::HeaderDigest, information: 0x1234_5678 };
    for (given, carried) in [(24, 24), (128, 128), (500, 128)] {
        let bytes = encode_term(kind::C2H_TERM_REQ, fatal, &vec![9; given]);
        assert_eq!(check_term(&common_of(&bytes)), Ok(carried));
        assert_eq!(bytes.len(), 24 + carried as usize);
        assert_eq!(parse_term(bytes[8..24].try_into().unwrap()), (3, 0x1234_5678));
    }
    let common = Common { kind: kind::H2C_TERM_REQ, flags: 0, header_bytes: 24, data_offset: 0, bytes: 153 };
    assert_eq!(check_term(&common), Err(Fatal::field(4)));
    assert_eq!(check_term(&Common { bytes: 23, ..common }), Err(Fatal::field(4)));
    assert_eq!(check_term(&Common { header_bytes: 8, ..common }), Err(Fatal::field(2)));
}

proptest! {
    #[test]
    fn any_header_is_taken_or_refused(bytes: [u8; 8], header_digest: bool, data_digest: bool, to_host: bool) {
        let terms = terms(header_digest, data_digest, 4);
        let common = Common::parse(&bytes);
        prop_assert_eq!(common.encode(), bytes);
        let to = if to_host { To::Host } else { To::Controller };
        if let Ok(frame) = check(&common, to, &terms) {
            let digests = if header_digest { 4 } else { 0 } + if frame.data_digest { 4 } else { 0 };
            let sum = u64::from(common.header_bytes) + u64::from(frame.padding) + u64::from(frame.data) + digests;
            prop_assert_eq!(sum, u64::from(common.bytes));
        }
        let _ = check_term(&common);
    }

    #[test]
    fn data_headers_come_back(bytes: [u8; 16]) {
        let header = DataHeader::parse(&bytes);
        prop_assert_eq!(&header.encode()[..12], &bytes[..12]);
    }
}
