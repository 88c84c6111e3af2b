// Keys of the coordinator's state. Numbers are 16 hexadecimal digits, so that order of key is order of number.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace skerry::coordinator {

inline constexpr char kMetaKey[] = "meta";
inline constexpr char kNodePrefix[] = "node/";
inline constexpr char kTokenPrefix[] = "token/";
inline constexpr char kDatasetPrefix[] = "dataset/";
inline constexpr char kRunPrefix[] = "run/";
inline constexpr char kExpertPrefix[] = "expert/";
inline constexpr char kEventPrefix[] = "event/";
inline constexpr char kDeletedPrefix[] = "deleted/";  // runs, by id
inline constexpr char kRevokedPrefix[] = "revoked/";  // ids that are not in the roster

// Kinds of events that come often.
inline constexpr char kEnrolled[] = "enrolled";
inline constexpr char kTurnedAway[] = "turned_away";
inline constexpr char kNodeJoined[] = "node_joined";
inline constexpr char kTransfer[] = "transfer";
inline constexpr char kPeerFault[] = "peer_fault";
inline constexpr char kRunState[] = "run_state";

std::string number_text(std::uint64_t number);
std::string expert_key(const ExpertId& id);
std::string event_key(std::uint64_t number);

}  // namespace skerry::coordinator
