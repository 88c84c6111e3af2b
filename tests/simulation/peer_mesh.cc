// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/peer_mesh.h"

#include "base/check.h"
#include "base/text.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

constexpr std::string_view kScheme = "tcp://";
// The transport's own heartbeats notice a dead link after about this long.
constexpr Duration kSilenceDetected = seconds(4);
constexpr Duration kHandshake = milliseconds(10);

}  // namespace

// ---- One end ----

MeshEnd::MeshEnd(PeerMesh& mesh, About about)
    : mesh_(mesh), about_(std::move(about)), number_(mesh.add(*this)) {}

MeshEnd::~MeshEnd() { mesh_.remove(*this); }

std::string MeshEnd::listens_at() const {
  return about_.listens ? text(kScheme, about_.address, ":7610") : std::string();
}

Result<void> MeshEnd::dial(const std::string& url, const std::string& ed25519_key) {
  const NodeId id = protocol::node_id(ed25519_key);
  if (!url.starts_with(kScheme)) return fail(ErrorCode::kInvalid, "not an address: " + url);
  if (!is_connected(id)) {
    const std::string place = url.substr(kScheme.size());
    mesh_.dial(*this, place.substr(0, place.find(':')), id);
  }
  return {};
}

Result<void> MeshEnd::send(const NodeId& peer, std::string_view bytes) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return fail(ErrorCode::kUnavailable, "not connected");
  mesh_.send(link->second, *this, std::string(bytes));
  return {};
}

void MeshEnd::close(const NodeId& peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const std::uint64_t link = found->second;
  links_.erase(found);
  mesh_.end_at(link, mesh_.links_.at(link).sides[0].end == this ? 0 : 1, false);
}

void MeshEnd::shut_out(const NodeId& peer, const std::string& /*x25519_key*/, Duration until) {
  shut_out_[peer] = until;
  close(peer);
}

bool MeshEnd::poll(const Handler& handle) {
  while (!events_.empty()) {
    protocol::PeerEvent event = std::move(events_.front());
    events_.pop_front();
    if (const auto* heard = std::get_if<protocol::PeerMessage>(&event);
        heard != nullptr && about_.overhears)
      about_.overhears(heard->peer, heard->message);
    handle(std::move(event));
  }
  return false;
}

void MeshEnd::tell(protocol::PeerEvent event) {
  events_.push_back(std::move(event));
  about_.wake();
}

void MeshEnd::opened(const NodeId& peer, std::uint64_t link, bool dialled) {
  links_[peer] = link;
  tell(protocol::PeerConnected{peer, dialled});
}

void MeshEnd::ended(const NodeId& peer, std::uint64_t link) {
  const auto found = links_.find(peer);
  if (found == links_.end() || found->second != link) return;
  links_.erase(found);
  tell(protocol::PeerGone{peer});
}

// ---- All of them ----

std::uint64_t PeerMesh::add(MeshEnd& end) {
  SKERRY_CHECK(ends_.emplace(end.about().address, &end).second, "two processes at ",
               end.about().address);
  return next_number_++;
}

void PeerMesh::remove(MeshEnd& end) {
  ends_.erase(end.about().address);
  for (const auto& [peer, link] : std::exchange(end.links_, {}))
    end_at(link, links_.at(link).sides[0].end == &end ? 0 : 1, end.silent_);
}

bool PeerMesh::is_cut(const std::string& from, const std::string& to) {
  return network_.weather(from).to_server_cut || network_.weather(to).to_client_cut;
}

Duration PeerMesh::delay(const std::string& from, const std::string& to) {
  return delay(network_.weather(from), network_.weather(to));
}

Duration PeerMesh::delay(const Weather& one, const Weather& other) {
  return dice_.duration(std::max(one.delay_min, other.delay_min),
                        std::max(one.delay_max, other.delay_max));
}

void PeerMesh::dial(const MeshEnd& from, const std::string& address, const NodeId& id) {
  timeline_.after(
      kHandshake + delay(from.about().address, address),
      [this, dialler = from.about().address, number = from.number_, address, id] {
        const auto start = ends_.find(dialler);
        const auto target = ends_.find(address);
        if (start == ends_.end() || start->second->number_ != number || target == ends_.end())
          return;
        if (target->second->about().id != id || !target->second->about().listens) return;
        connect(*start->second, address);
      });
}

bool PeerMesh::connect(MeshEnd& from, const std::string& address) {
  const auto target = ends_.find(address);
  if (target == ends_.end() || target->second == &from) return false;
  MeshEnd& to = *target->second;
  const auto refuses = [&](const MeshEnd& one, const NodeId& other) {
    const auto until = one.shut_out_.find(other);
    return (until != one.shut_out_.end() && one.about().boot() < until->second) ||
           (one.about().admits && !one.about().admits(other));
  };
  if (is_cut(from.about().address, address) || is_cut(address, from.about().address) ||
      refuses(from, to.about().id) || refuses(to, from.about().id) ||
      from.is_connected(to.about().id)) {
    return false;
  }
  // Of one key the latest connection counts, as where its process has ended and
  // that is not known yet.
  if (const auto old = to.links_.find(from.about().id); old != to.links_.end()) {
    const std::uint64_t link = old->second;
    const int side = links_.at(link).sides[0].end == &to ? 0 : 1;
    to.ended(from.about().id, link);
    end_at(link, side, false);
  }
  const std::uint64_t number = next_number_++;
  Link& link = links_[number];
  link.sides[0] = {&from, from.about().address, from.about().id, {}};
  link.sides[1] = {&to, address, to.about().id, {}};
  trace_.add(from.about().address, "peers", address);
  from.opened(to.about().id, number, true);
  to.opened(from.about().id, number, false);
  return true;
}

void PeerMesh::send(std::uint64_t number, const MeshEnd& from, std::string bytes) {
  Link& link = links_.at(number);
  const int to = link.sides[0].end == &from ? 1 : 0;
  Side& target = link.sides[to];
  const Weather& one = network_.weather(from.about().address);
  const Weather& other = network_.weather(target.address);
  const bool is_stream = !is_gossip(bytes);
  if (one.to_server_cut || other.to_client_cut) {
    link.has_lost = link.has_lost || is_stream;
    return watch(number);
  }
  if (dice_.chance(one.loss) || dice_.chance(other.loss) ||
      (brings_chunk(bytes) && dice_.chance(network_.transfers_fail))) {
    if (is_stream) {
      for (const int side : {0, 1}) learn_later(number, side, milliseconds(5));
    }
    return;
  }
  const int copies = !is_stream && dice_.chance(std::max(one.duplicate, other.duplicate)) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    Duration when = timeline_.now() + delay(one, other);
    if (is_stream || (copy == 0 && !dice_.chance(std::max(one.reorder, other.reorder))))
      when = target.last = std::max(when, target.last);
    if (brings_chunk(bytes)) when = target.last = when + network_.chunk_time;
    timeline_.at(when, [this, number, to, bytes] { deliver(number, to, bytes); });
  }
}

void PeerMesh::deliver(std::uint64_t number, int to, const std::string& bytes) {
  const auto found = links_.find(number);
  if (found == links_.end() || found->second.sides[to].end == nullptr) return;
  const Side& side = found->second.sides[to];
  auto message = protocol::parse_blob_message(bytes);
  SKERRY_CHECK(message.has_value(), "a daemon says what no daemon reads");
  trace_.add(side.address, "from peer", bytes);
  side.end->tell(protocol::PeerMessage{found->second.sides[1 - to].id, std::move(*message)});
}

void PeerMesh::end_at(std::uint64_t number, int side, bool silent) {
  Link& link = links_.at(number);
  link.sides[side].end = nullptr;
  const std::string& here = link.sides[side].address;
  const std::string& there = link.sides[1 - side].address;
  if (link.sides[1 - side].end == nullptr) {
    links_.erase(number);
    return;
  }
  const bool is_unheard = silent || is_cut(here, there);
  learn_later(number, 1 - side, is_unheard ? kSilenceDetected : delay(here, there));
}

void PeerMesh::learn_later(std::uint64_t number, int side, Duration delay) {
  timeline_.after(delay, [this, number, side] { learn(number, side); });
}

void PeerMesh::learn(std::uint64_t number, int side) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  Link& link = found->second;
  MeshEnd* end = std::exchange(link.sides[side].end, nullptr);
  const NodeId peer = link.sides[1 - side].id;
  if (link.sides[0].end == nullptr && link.sides[1].end == nullptr) links_.erase(found);
  if (end != nullptr) end->ended(peer, number);
}

// What is said over a link that is cut is never heard; if the cut lasts, both
// sides give the link up.
void PeerMesh::watch(std::uint64_t number) {
  if (std::exchange(links_.at(number).is_watched, true)) return;
  timeline_.after(kSilenceDetected, [this, number] {
    const auto found = links_.find(number);
    if (found == links_.end()) return;
    Link& link = found->second;
    link.is_watched = false;
    const std::string& one = link.sides[0].address;
    const std::string& other = link.sides[1].address;
    if (!link.has_lost && !is_cut(one, other) && !is_cut(other, one)) return;
    learn(number, 0);
    learn(number, 1);
  });
}

void PeerMesh::reset(const std::string& address) {
  for (const auto& [number, link] : links_) {
    if (link.sides[0].address != address && link.sides[1].address != address) continue;
    for (const int side : {0, 1})
      learn_later(number, side,
                  dice_.duration({}, dice_.chance(0.3) ? seconds(3) : milliseconds(50)));
  }
}

}  // namespace skerry::simulation
