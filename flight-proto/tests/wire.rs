//! Tests the bytes of messages that nodes of two releases may exchange. Fields are added, and never
//! change.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use prost::Message;
use volary_flight_proto::control::{
    AbortWrite, Control, DropTable, ListSegments, Report, SegmentDescription, ShardContent,
    ShardName, WorkerReport, control,
};
use volary_flight_proto::direct::{DirectTicket, Introduced, Introduction};
use volary_flight_proto::fragment::{
    Expiry, Fragment, FragmentId, HashBuckets, Leaf, MemberRows, Parameter, Parameters, Relayed,
    ScanShards, ShardScan, Sharding, leaf, parameter,
};
use volary_flight_proto::frame::{EndOfStream, Frame, RowsByBucket};
use volary_flight_proto::lineage::{Incarnation, Lineage};
use volary_flight_proto::lookup::LookupRequest;
use volary_flight_proto::membership::{
    CheckAnswer, CheckRequest, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse,
};
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::session::SessionClaims;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::stage_times::StageTimes;
use volary_flight_proto::ticket::{
    FragmentTicket, Member, PreparedStatementHandle, QueryTicket, RelationRead,
};
use volary_flight_proto::write::{TableDescription, WriteRequest};

/// Asserts that the message encodes to these bytes, and that these bytes decode to the message.
fn assert_bytes<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, golden: &str) {
    let bytes = message.encode_to_vec();
    assert_eq!(hex::encode(&bytes), golden);
    assert_eq!(&M::decode(bytes.as_slice()).unwrap(), message);
}

fn snapshot() -> Snapshot {
    Snapshot {
        high: 300,
        excluded_bounds: vec![12, 299],
        ..Snapshot::default()
    }
}

#[test]
fn a_scan_has_its_bytes() {
    let sharded = ShardScan {
        table_id: 7,
        table_name: "orders".to_owned(),
        projection: vec![0, 3],
        reference: false,
        ordinal: 1,
        table_schema: vec![1, 2].into(),
        late_materialisation: true,
        expiry: Some(Expiry {
            time_column: 2,
            keep_us: 300,
        }),
        sharding: Some(Sharding {
            key_column: 1,
            shards: 16,
        }),
    };
    let expected = "080712066f72646572731a0200032801320201023801".to_owned()
        + "4205080210ac02"
        + "4a0408011010";
    assert_bytes(&sharded, &expected);
    let reference = ShardScan {
        table_id: 8,
        table_name: "nation".to_owned(),
        reference: true,
        ..ShardScan::default()
    };
    assert_bytes(&reference, "080812066e6174696f6e2001");
    let leaf = |kind| Leaf { kind: Some(kind) };
    let scan = leaf(leaf::Kind::Scan(reference));
    assert_bytes(&scan, "0a0c080812066e6174696f6e2001");
    let rows = MemberRows {
        schema: vec![1, 2].into(),
    };
    assert_bytes(&leaf(leaf::Kind::Members(rows)), "12040a020102");
}

#[test]
fn a_fragment_has_its_bytes() {
    let fragment = Fragment {
        plan: vec![0x0a, 0x0b].into(),
        ordered: true,
        fetch: Some(10),
        batch_rows: 8192,
        keep_alive_ms: 2500,
        with_plan_metrics: true,
        buckets: None,
        relayed: None,
    };
    assert_bytes(&fragment, "0a020a0b1001180a20804028c4133001");
    let in_buckets = Fragment {
        buckets: Some(HashBuckets {
            columns: vec![0, 2],
            partitions: 4,
            rounds: 128,
        }),
        ..Fragment::default()
    };
    assert_bytes(&in_buckets, "42090a0200021004188001");
    let relaying = Fragment {
        relayed: Some(Relayed {
            fragment: vec![0x0a].into(),
            idle_timeout_ms: 10_000,
            batch_bytes: 300,
        }),
        ..Fragment::default()
    };
    assert_bytes(&relaying, "4a090a010a10904e18ac02");
    let literal = Parameter {
        kind: Some(parameter::Kind::Literal(0)),
    };
    assert_bytes(&literal, "0800");
    let key_set = Parameter {
        kind: Some(parameter::Kind::KeySet(300)),
    };
    assert_bytes(&key_set, "10ac02");
}

#[test]
fn a_fragment_ticket_has_its_bytes() {
    let parameters = Parameters {
        values: vec![vec![1, 2].into(), Vec::new().into()],
    };
    assert_bytes(&parameters, "0a0201020a00");
    let with_handle = FragmentTicket {
        query_id: vec![1, 2].into(),
        cluster: 3,
        worker_id: 5,
        fragment_id: vec![4].into(),
        fragment: None,
        parameters: vec![6].into(),
        scans: vec![
            ScanShards {
                shards: vec![0, 64],
                ..ScanShards::default()
            },
            ScanShards::default(),
        ],
        snapshot: Some(snapshot()),
        batch_bytes: 1 << 20,
        single_round_bytes: 1 << 16,
        members: Vec::new(),
        announced: Vec::new().into(),
        lineage: None,
        counted: None,
        owner: 0,
        trace: Vec::new().into(),
        as_of_us: 0,
    };
    assert_bytes(
        &with_handle,
        "0a02010211030000000000000018052201043201063a040a0200403a00420808ac021a030cab024880804050808004",
    );
    let with_fragment = FragmentTicket {
        fragment: Some(vec![0x0a, 0x0b].into()),
        parameters: Vec::new().into(),
        scans: Vec::new(),
        ..with_handle.clone()
    };
    assert_bytes(
        &with_fragment,
        "0a02010211030000000000000018052201042a020a0b420808ac021a030cab024880804050808004",
    );
    let of_relay = FragmentTicket {
        members: vec![Member {
            worker_id: 300,
            address: "h:1".to_owned(),
            scans: with_handle.scans,
        }],
        ..FragmentTicket::default()
    };
    assert_bytes(&of_relay, "5a1008ac021203683a311a040a0200401a00");
    let for_client = FragmentTicket {
        announced: vec![0x0c, 0x0d].into(),
        ..FragmentTicket::default()
    };
    assert_bytes(&for_client, "62020c0d");
    let owned = FragmentTicket {
        owner: 0x0102,
        ..FragmentTicket::default()
    };
    assert_bytes(&owned, "7d02010000");
    let traced = FragmentTicket {
        trace: vec![0x0e].into(),
        ..FragmentTicket::default()
    };
    assert_bytes(&traced, "8201010e");
    let timed = FragmentTicket {
        as_of_us: -3,
        ..FragmentTicket::default()
    };
    assert_bytes(&timed, "880105");
    let counted = FragmentTicket {
        scans: vec![
            ScanShards {
                shards: vec![0, 64],
                tallies: vec![7, 0x0102_0304],
                rows: Vec::new(),
            },
            ScanShards {
                shards: vec![3],
                tallies: Vec::new(),
                rows: vec![300],
            },
        ],
        lineage: Some(lineage()),
        counted: Some(snapshot()),
        ..FragmentTicket::default()
    };
    assert_bytes(
        &counted,
        "3a0e0a02004012080700000004030201\
         3a070a01031a02ac02\
         6a0f0d0a000000151400000018ac022007\
         720808ac021a030cab02",
    );
}

fn lineage() -> Lineage {
    Lineage {
        incarnation: 10,
        ancestor: 20,
        from_write: 300,
        base_commits: Some(7),
    }
}

/// A gateway and its workers exchange such a ticket for each query. It is small, however long the
/// plan is.
#[test]
fn a_sealed_ticket_with_a_handle_is_small() {
    let ticket = FragmentTicket {
        query_id: vec![1; 16].into(),
        cluster: u64::MAX,
        worker_id: 2160,
        fragment_id: FragmentId::of(b"a plan").to_bytes(),
        scans: vec![ScanShards {
            shards: vec![2159, 4319],
            tallies: vec![u32::MAX; 2],
            rows: Vec::new(),
        }],
        lineage: Some(Lineage {
            incarnation: u32::MAX,
            ancestor: u32::MAX,
            from_write: 100_000,
            base_commits: Some(100_000),
        }),
        snapshot: Some(Snapshot {
            high: 100_000,
            ..Snapshot::default()
        }),
        batch_bytes: 1 << 20,
        ..FragmentTicket::default()
    };
    let sealer = Sealer::new(Key::from_secret("secret"));
    let sealed = sealer.seal(Purpose::Fragment, &ticket, Duration::from_secs(60));
    assert!(sealed.len() <= 128, "{} bytes", sealed.len());
}

#[test]
fn commands_have_their_bytes() {
    let commands = [
        (
            control::Command::ListSegments(ListSegments {}),
            "080512002a0163",
        ),
        (
            control::Command::DropTable(DropTable { table_id: 7 }),
            "08051a0208072a0163",
        ),
        (
            control::Command::AbortWrite(AbortWrite { write_id: 300 }),
            "0805220308ac022a0163",
        ),
        (
            control::Command::Report(Report {
                live_tables: vec![1, 300],
                last_table: 300,
                aborted_bounds: vec![7, 300],
                last_abort: 9,
                next_ms: 1000,
                ..Report::default()
            }),
            "080532120a0301ac0210ac0220e807420307ac0248092a0163",
        ),
    ];
    for (command, golden) in commands {
        let control = Control {
            worker_id: 5,
            command: Some(command),
            cluster_id: "c".to_owned(),
            lineage: None,
            commits: 0,
        };
        assert_bytes(&control, golden);
    }
    let of_history = Control {
        worker_id: 5,
        lineage: Some(lineage()),
        ..Control::default()
    };
    assert_bytes(&of_history, "08053a0f0d0a000000151400000018ac022007");
    let content = ShardContent {
        shard: Some(ShardName {
            table_id: 7,
            shard: 3,
        }),
        rows: 300,
        tally: Some(5),
    };
    let question = Report {
        set_aside: true,
        contents: vec![content],
        snapshot: Some(snapshot()),
        ..Report::default()
    };
    assert_bytes(
        &question,
        "2801320e0a040807100310ac021d050000003a0808ac021a030cab02",
    );
    let segment = SegmentDescription {
        table_id: 7,
        shard: 3,
        write_id: 300,
        file: "f".to_owned(),
        rows: 9,
        bytes: 300,
        damage: "d".to_owned(),
    };
    assert_bytes(&segment, "0807100318ac02220166280930ac023a0164");
}

#[test]
fn a_write_has_its_bytes() {
    let request = WriteRequest {
        query_id: "q".to_owned(),
        worker_id: 5,
        write_id: 300,
        table: Some(TableDescription {
            table_id: 7,
            name: "t".to_owned(),
            schema: vec![1, 2].into(),
            shard_key: Some(0),
            is_sharded: true,
            sort_key: vec![0, 3],
            shards: 64,
        }),
        cluster_id: "c".to_owned(),
        instance: "i".to_owned(),
        stream_id: "s".to_owned(),
        lineage: None,
        owner: 0,
        trace: Vec::new().into(),
        commits: 0,
    };
    assert_bytes(
        &request,
        "0a0171100518ac02221308071201741a02010220002a020003304038012a01633201693a0173",
    );
    let traced = WriteRequest {
        trace: vec![0x0e].into(),
        ..WriteRequest::default()
    };
    assert_bytes(&traced, "52010e");
    let counted = WriteRequest {
        commits: 300,
        ..WriteRequest::default()
    };
    assert_bytes(&counted, "58ac02");
}

#[test]
fn what_workers_and_gateways_tell_each_other_has_its_bytes() {
    let join = JoinRequest {
        worker_id: Some(5),
        cluster_id: Some("c".to_owned()),
        address: "h:1".to_owned(),
        instance: "i".to_owned(),
        version: "0.1.0".to_owned(),
        zone: None,
    };
    assert_bytes(&join, "08051201631a03683a312201692a05302e312e30");
    let join_in_zone = JoinRequest {
        zone: Some("z".to_owned()),
        ..join.clone()
    };
    assert_bytes(
        &join_in_zone,
        "08051201631a03683a312201692a05302e312e3032017a",
    );
    let check = CheckRequest {
        join: Some(join),
        nonce: vec![1, 2].into(),
    };
    assert_bytes(
        &check,
        "0a1408051201631a03683a312201692a05302e312e3012020102",
    );
    let checked = CheckAnswer {
        nonce: vec![1, 2].into(),
        version: "v".to_owned(),
        cluster_id: "c".to_owned(),
        now_ms: 300,
        refusal: "r".to_owned(),
    };
    assert_bytes(&checked, "0a0201021201761a016320ac022a0172");
    let joined = JoinResponse {
        worker_id: 5,
        cluster_id: "c".to_owned(),
        key: vec![1, 2].into(),
        report_interval_ms: 5000,
    };
    assert_bytes(&joined, "08051201631a020102208827");
    let report = WorkerReport {
        worker_id: 5,
        instance: "i".to_owned(),
        running_fragments: 2,
        memory_reserved_bytes: 4096,
        segments: 3,
        rows: 9,
        bytes: 300,
        deleted_through: 300,
        heard_commits: 7,
        draining: true,
        clients_uri: "u".to_owned(),
        ..WorkerReport::default()
    };
    assert_bytes(
        &report,
        "080512016918022080202803300938ac02480152017578ac02800107",
    );
    let of_history = WorkerReport {
        incarnations: vec![Incarnation {
            id: 10,
            first_write: 300,
        }],
        max_write: 300,
        unproven: vec![ShardName {
            table_id: 7,
            shard: 3,
        }],
        adopted: true,
        ..WorkerReport::default()
    };
    assert_bytes(&of_history, "5a080d0a00000010ac0260ac026a04080710037001");
    let request = WriteRequest {
        lineage: Some(lineage()),
        ..WriteRequest::default()
    };
    assert_bytes(&request, "420f0d0a000000151400000018ac022007");
    let request = WriteRequest {
        owner: 300,
        ..WriteRequest::default()
    };
    assert_bytes(&request, "48ac02");
    let leave = LeaveRequest {
        worker_id: 5,
        instance: "i".to_owned(),
    };
    assert_bytes(&leave, "0805120169");
    assert_bytes(&LeaveResponse {}, "");
    let introduction = Introduction {
        authorization: Some("a".to_owned()),
        peer: "p".to_owned(),
        ticket: vec![1].into(),
    };
    assert_bytes(&introduction, "0a01611201701a0101");
    let introduced = Introduced {
        authorization: Some("a".to_owned()),
        user: "u".to_owned(),
        ticket: Some(DirectTicket {
            timeout_ms: 5,
            ..DirectTicket::default()
        }),
    };
    assert_bytes(&introduced, "0a01611201751a022005");
}

#[test]
fn what_clients_hold_has_its_bytes() {
    let ticket = QueryTicket {
        query_id: "q".to_owned(),
        sql: "SELECT 1".to_owned(),
        parameters: vec![1].into(),
        snapshot: Some(snapshot()),
        settings: [("a".to_owned(), "b".to_owned())].into(),
        result: Some(Vec::new().into()),
        command: Some(vec![2].into()),
        reads: [("t".to_owned(), 7)].into(),
        columns: Some(9),
        user: "u".to_owned(),
        reads_in_schemas: vec![RelationRead {
            schema: "s".to_owned(),
            name: "t".to_owned(),
            version: 8,
        }],
        session: Some("i".to_owned()),
        trace: vec![0x0e].into(),
    };
    assert_bytes(
        &ticket,
        "0a0171120853454c45435420311a0101220808ac021a030cab022a060a016112016232003a010242050a017410074909000000000000005201755a080a017312017418086201696a010e",
    );
    let direct = DirectTicket {
        query: Some(QueryTicket {
            query_id: "q".to_owned(),
            ..QueryTicket::default()
        }),
        part: Some(FragmentTicket {
            worker_id: 5,
            ..FragmentTicket::default()
        }),
        announced: vec![1, 2].into(),
        timeout_ms: 300,
    };
    assert_bytes(&direct, "0a030a0171120218051a02010220ac02");
    let handle = PreparedStatementHandle {
        sql: "SELECT ?".to_owned(),
        parameters: Some(vec![3].into()),
        user: "u".to_owned(),
    };
    assert_bytes(&handle, "0a0853454c454354203f1201031a0175");
    let lookup = LookupRequest {
        table: "birds".to_owned(),
        schema: Some("nests".to_owned()),
        catalog: Some("volary".to_owned()),
        columns: vec!["name".to_owned(), "k".to_owned()],
        one_snapshot: true,
    };
    assert_bytes(
        &lookup,
        "0a05626972647312056e657374731a06766f6c61727922046e616d6522016b2801",
    );
    let claims = SessionClaims {
        user: "u".to_owned(),
        generation: 3,
        session: "s".to_owned(),
        issued_at_s: 300,
    };
    assert_bytes(&claims, "0a017510031a017320ac02");
}

#[test]
fn frames_have_their_bytes() {
    assert_bytes(&Frame::keep_alive(), "0a00");
    assert_bytes(&Frame::send_fragment(), "1a00");
    let end = EndOfStream {
        rows: 3,
        batches: 1,
        first_row_us: 10,
        total_us: 20,
        compute_us: 5,
        scanned_rows: 9,
        scanned_bytes: 4096,
        segments: 2,
        plan_metrics: "plan".to_owned(),
        queued_us: 1,
        slowest_member: "w".to_owned(),
        sent_bytes: 6,
        stages: None,
        reader_us: 0,
    };
    assert_bytes(
        &Frame::end(end.clone()),
        "121e08031001180a20142805300938802040024a04706c616e50015a01776006",
    );
    let timed = EndOfStream {
        stages: Some(StageTimes {
            queued_us: 1,
            bind_us: 2,
            index_us: 3,
            read_us: 300,
            compute_us: 5,
            encode_us: 6,
            wire_us: 7,
        }),
        reader_us: 8,
        ..end
    };
    assert_bytes(
        &Frame::end(timed),
        "123108031001180a20142805300938802040024a04706c616e50015a017760066a0f08011002180320ac022805300638077008",
    );
}

#[test]
fn rows_by_bucket_have_their_bytes() {
    let frame = Frame::rows_by_bucket(RowsByBucket {
        rounds: 128,
        total_bytes: 300,
        buckets: vec![1, 300],
        rows: vec![5, 6],
    });
    assert_bytes(&frame, "220f08800110ac021a0301ac0222020506");
}
