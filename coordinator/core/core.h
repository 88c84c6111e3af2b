// SPDX-License-Identifier: Apache-2.0
// The coordinator's core: roster, tokens, datasets, runs, leases, commits and
// events in one deterministic state machine without sockets, disk or clock.
//
// step(event, now) returns Effects; perform.h carries them out in the order it
// states. Batches become durable atomically, in the order of their numbers;
// Persisted reports them. A reply leaves once the batch `after_batch` is
// durable (S7). Heartbeat replies wait for no batch: they contain only durable
// state, and a slow disk must not expire leases. While the disk has no room,
// replies to people's reads do not wait either: Hello's reply says that what
// they read may be lost. Only changes that free room are accepted then.
//
// Client-visible protocol:
//   - Hello is the first message on each connection. Anything else gets an
//     error of code "conflict" with the message kHelloFirst. The daemon then
//     sends Hello again: its socket may have reconnected by itself.
//   - Every request is idempotent: a repeated message gets the same reply.
//   - A commit whose object must be fetched gets COMMIT_FETCHING. Once decided,
//     it gets a second reply under the request id of the last request. Clients
//     may repeat the request at any time.
//   - An error of code "unavailable" is temporary: retry.
//   - A holder that receives yield_after_commit stops, commits all it has
//     trained, and then sends ReturnLease. Only an expert's last commit ends a
//     lease, so no commit cuts off the steps trained after it.
//
// ON FAILURE: undeliverable messages are dropped; senders retry. A failed write
// ends the process; the next start loads what is durable.
// THREADS: one, that of the host (host.h) or of the simulation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "coordinator/core/config.h"
#include "protocol/gossip.pb.h"
#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

inline constexpr char kHelloFirst[] = "Hello must come first on a connection";
inline constexpr char kNoRoom[] =
    "the coordinator's disk is full, and nothing was changed: free space there, or pause or stop "
    "and delete runs and datasets";
inline constexpr char kRecalling[] =
    "this coordinator was restored and asks its nodes first what it had revoked since; ask again "
    "in a moment";

// The transport's opaque name for a connection; never used as an identity
// (S12).
using ConnectionId = std::string;

struct KeyValue {
  std::string key;
  std::string value;
};

struct Write {
  std::string key;
  std::optional<std::string> value;  // none: deleted
};

// ---- Events -----------------------------------------------------------------

struct Received {
  ConnectionId connection;
  std::string key;             // X25519, 32 bytes, authenticated by the transport
  pb::ControlRequest request;  // validated (protocol/validate.h)
  std::string address;         // of the peer, for display; may be empty
};

struct EnrolReceived {
  ConnectionId connection;
  std::string key;
  pb::EnrolRequest request;
  std::string address;  // as above
};

// The host refused a peer before its request reached the core. The core reports
// its own refusals for lack of permission the same way.
struct TurnedAway {
  std::string key;      // X25519; empty: unknown, or `node` identifies the peer
  std::string address;  // may be empty
  std::string why;      // one of a few phrases: equal ones are counted together, by the minute
  std::string detail;   // of this refusal
  NodeId node;
};

struct Closed {
  ConnectionId connection;
};

struct Persisted {
  std::uint64_t batch = 0;
};

// The metadata in a checkpoint's manifest. For a plain file only the name is
// set.
struct ObjectFacts {
  std::string name;
  RunId run;
  std::uint32_t expert = 0;
  Epoch epoch;
  std::uint32_t attempt = 0;
  std::uint64_t step = 0;
  std::optional<Hash> parent;
  std::string fingerprint;
};

// The object is durable: the manifest and every chunk, each hash verified. The
// host also sends one for each object that it finds at start.
struct ObjectStored {
  Hash manifest;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  bool checkpoint = false;
  ObjectFacts facts;
};

struct ObjectFailed {
  Hash manifest;
  std::string reason;
  bool may_retry = true;  // false: the content itself is invalid
};

// Verification found a corrupted chunk in a stored object, which is therefore
// no longer served. A new upload repairs a file; ObjectStored reports it.
struct ObjectDamaged {
  Hash manifest;
};

// Connected nodes that claim to hold a complete copy of an object that is
// damaged here.
struct HeldElsewhere {
  Hash manifest;
  std::vector<NodeId> nodes;
};

// Progress of a verification that Effects::verifies requested. The last one has
// `done` set; if the object is damaged, ObjectDamaged comes before it.
struct ObjectChecked {
  Hash manifest;
  std::uint64_t bytes = 0;  // read and hashed so far
  std::uint64_t chunks = 0;
  bool done = false;
  std::vector<Hash> damaged;  // chunks
};

struct ObjectProgress {
  Hash manifest;
  std::uint64_t received_bytes = 0;  // so far, of this object
};

// All that the nodes' records say about this coordinator. They may be newer
// than its state, which may come from a backup.
struct RecordsReceived {
  std::vector<NodeId> revoked;      // by a record of this coordinator
  std::vector<NodeId> recalled;     // nodes that returned every revocation they hold
  std::vector<pb::RunRecord> runs;  // not withdrawn
};

// The reply to Effects::seeks: every checkpoint that records name for the
// experts of a run, the best first for each expert (gossip::expert_heads).
struct RunRecords {
  struct Head {
    pb::ExpertRecord record;
    NodeId author;
    bool acknowledged = false;  // by a record of this coordinator; else only a node claims it
  };
  RunId run;
  std::vector<Head> heads;
};

// The reply to Effects::reads: the content of a stored file.
struct FileRead {
  Hash manifest;
  std::string bytes;
};

struct Tick {};

// The host's loop ran late by this much. Sent before the events that queued up
// meanwhile.
struct LoopLag {
  Duration lag{};
};

struct DiskFree {
  std::uint64_t bytes = 0;
};

// The disk has no room for the batches that wait, or has room again.
struct RoomForBatches {
  bool lacking = false;
};

using Event =
    std::variant<Received, EnrolReceived, TurnedAway, Closed, Persisted, ObjectStored, ObjectFailed,
                 ObjectDamaged, HeldElsewhere, ObjectChecked, ObjectProgress, RecordsReceived,
                 RunRecords, FileRead, Tick, LoopLag, DiskFree, RoomForBatches>;

// ---- Effects ----------------------------------------------------------------

enum class Endpoint { kEnrol, kControl };

struct Send {
  ConnectionId connection;
  Endpoint endpoint = Endpoint::kControl;
  std::variant<pb::ControlReply, pb::EnrolReply> message;
  std::uint64_t after_batch = 0;
};

enum class Purpose { kCheckpoint, kFile };

// Fetch the object from a node over blob. A repeated order for an object,
// perhaps with another source, resumes its transfer.
struct Fetch {
  Hash manifest;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  NodeId from;
  Purpose purpose = Purpose::kFile;
  std::string name;  // of a file
};

// Delete the object: no durable state names it, and nothing else needs it (S8).
// After a crash before the deletion, the next start reports the object by
// ObjectStored, and the core drops it again.
struct Drop {
  Hash manifest;
  Purpose purpose = Purpose::kFile;
};

// Allow a key on the control and blob endpoints, or remove it.
struct RosterChange {
  NodeId node;
  std::string key;  // X25519
  pb::Role role = pb::ROLE_NONE;
  bool allowed = false;
};

// The writes of one step.
struct Batch {
  std::uint64_t number = 0;  // 0: the step writes nothing
  std::vector<Write> writes;
  // An operator deletes a dataset or a run, or stops a run to delete it. This
  // batch, and those before it, are written even if the disk is full.
  bool makes_room = false;
};

struct Effects {
  Batch batch;
  std::vector<Send> sends;
  std::vector<Fetch> fetches;
  std::vector<Hash> cancel_fetches;
  std::vector<Drop> drops;
  // Stored objects to read and hash again, one at a time, in the background.
  std::vector<Hash> verifies;
  std::vector<RunId> seeks;  // runs whose records the core requests
  std::vector<Hash> reads;   // stored files whose content the core requests
  std::vector<RosterChange> roster;
  std::vector<ConnectionId> disconnects;
  Duration next{};  // boot time: the host sends a Tick no later
};

// ---- Injected dependencies --------------------------------------------------

class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<unsigned char> out) = 0;
};

// The coordinator's signing identity, as the core uses it.
class Authority {
 public:
  virtual ~Authority() = default;
  // RETURNS: the id of the Ed25519 key in the request.
  // ON FAILURE: kUnauthorised if the signature does not prove possession of the
  // key, or if its X25519 form is not `key`.
  virtual Result<NodeId> check_possession(const pb::EnrolRequest& request,
                                          const std::string& key) const = 0;
  // Fills in the coordinator's key and signs.
  virtual pb::Certificate certify(pb::CertificateBody body) const = 0;
  // RETURNS: the body, if this coordinator signed it and it has not expired.
  // ON FAILURE: kCorrupt or kUnauthorised.
  virtual Result<pb::CertificateBody> open(const pb::Certificate& certificate,
                                           std::int64_t unix_ms) const = 0;
};

// ---- The core ---------------------------------------------------------------

// The first admin, who is added to the roster without a token.
struct FirstAdmin {
  NodeId node;
  std::string ed25519_key;
  std::string x25519_key;
  std::string name = "admin";
};

struct FirstStart {
  pb::Certificate certificate;  // of the admin
  pb::TokenCreated token;       // that joins nodes
};

struct LeaseView {
  NodeId node;
  std::uint32_t slot = 0;
  std::vector<std::uint32_t> more;  // further slots of the node that it holds
  std::uint64_t incarnation = 0;
  bool lapsed = false;  // expired but not reassigned: its holder resumes it if it returns first
  bool kept = false;    // an earlier schedule had kept the slot for it
  bool operator==(const LeaseView&) const = default;
};

struct ExpertView {
  ExpertId id;
  Epoch epoch;
  std::uint32_t attempt = 0;
  std::optional<Hash> head;
  Step head_step = 0;
  std::optional<LeaseView> lease;
  bool yields = false;          // its holder must return it at its next commit
  bool reserved = false;        // a slot is kept for it
  std::uint32_t copies = 1;     // wanted
  std::optional<Hash> pending;  // of the commit that waits for a fetch or for its copies
  std::vector<NodeId> places;   // whose copies a commit waits for, beside this disk
  std::vector<NodeId> stalled;  // not chosen for a while
  double dollars = 0;           // spent on its leases, as of the last Tick
};

// An object that durable state names. The host must have it.
struct NamedObject {
  Hash manifest;
  Purpose purpose = Purpose::kFile;
  bool complete = false;  // false: a dataset's file whose upload may be unfinished
  std::string needed_by;  // "run fashion, expert 3", for a message
};

// What records publish about a run, so that nodes can serve it without the
// coordinator.
struct RunFacts {
  pb::EnsembleReply about;                // the immutable part: no experts, no state
  std::vector<std::uint32_t> removed;     // from the ensemble, ascending
  std::vector<pb::ExpertRecord> experts;  // those that have a head
};

struct Machine;

class Core {
 public:
  // Loads and checks a state; an empty one is a first start.
  // ON FAILURE: kCorrupt, which names the inconsistent key (S16).
  // LIFETIME: `config`, `rng` and `authority` outlive the core.
  static Result<std::unique_ptr<Core>> load(const Config& config, Rng& rng,
                                            const Authority& authority,
                                            std::span<const KeyValue> state, Now now);
  ~Core();

  // Emits the roster and the start event, and opens the recovery window.
  // REQUIRES: called once, before the first step.
  Effects start(Now now);
  Effects step(const Event& event, Now now);

  // Creates the admin and a token that joins nodes. The caller shows them once
  // effects.batch is durable.
  // REQUIRES: an empty state; called after start().
  FirstStart first_start(const FirstAdmin& admin, Now now, Effects& effects);

  bool is_empty() const;  // the roster is
  std::vector<NamedObject> objects() const;
  // Whether this node or person may read the object's chunks. People may read
  // every object. Nodes may read the shards and heads of the experts that they
  // train or stand by for, and the objects that routers are built from.
  bool may_read(const NodeId& node, const Hash& manifest) const;
  // RETURNS: objects missing from the disk that durable state names or an
  // adoption needs, and that no node was asked for recently.
  std::vector<Hash> lost_objects() const;
  // RETURNS: the node with this X25519 key, unless it is revoked.
  std::optional<NodeId> node_of_key(const std::string& key) const;
  // Durable once the last batch is.
  std::vector<RunFacts> run_facts() const;
  std::vector<NodeId> revoked() const;
  std::set<RunId> deleted_runs() const;  // their records are withdrawn
  // True after a restore, while the core still collects revocations from nodes
  // and refuses requests.
  bool recalls() const;
  // For invariants and tests.
  std::vector<ExpertView> experts() const;
  void experts(std::vector<ExpertView>& views) const;  // overwrites `views`, reuses its memory
  std::uint64_t last_version() const;                  // of any assignment; later ones are higher
  std::uint64_t last_batch() const;
  std::uint64_t persisted_batch() const;

  // Converts a backup's state for `restore`: raises the epoch generation by one
  // and continues the epoch counters from `unix_ms`, the time of the restore.
  // So two restores of one generation never share an epoch (S3). kExpire ends
  // all join tokens, because a backup does not know their later uses.
  enum class Tokens { kExpire, kKeep };
  static Result<std::vector<KeyValue>> restored(std::span<const KeyValue> state,
                                                std::int64_t unix_ms, Tokens tokens);
  // RETURNS: the state of a coordinator that lost everything but its identity:
  // the roster is empty, and epochs continue as after a restore.
  static std::vector<KeyValue> fresh(std::int64_t unix_ms);

 private:
  explicit Core(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

}  // namespace skerry::coordinator
