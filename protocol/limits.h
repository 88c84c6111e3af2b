// SPDX-License-Identifier: Apache-2.0
// Every limit on input from outside, in one place. A message that breaks one is
// refused; the error names the field.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skerry::protocol {

inline constexpr std::uint32_t kVersionMajor = 1;
inline constexpr std::uint32_t kVersionMinor =
    2;  // also speaks with one minor version below or above
// The first whose nodes know leases of several slots.
inline constexpr std::uint32_t kMinorOfCards = 2;
// The first whose nodes train on captions.
inline constexpr std::uint32_t kMinorOfCaptions = 2;

inline constexpr std::size_t kEnrolMessageBytes = 4 << 10;
inline constexpr std::size_t kControlMessageBytes = 256 << 10;
inline constexpr std::size_t kPeersBytes = 128 << 10;  // of nodes' records in the answer to a Hello
inline constexpr std::size_t kChunkBytes = 4 << 20;
inline constexpr std::size_t kBlobMessageBytes = kChunkBytes + 4096;
// a bit for each chunk that a one-chunk manifest can name
inline constexpr std::size_t kMapBytes = 16 << 10;
inline constexpr std::size_t kMapAdded = 1024;
inline constexpr std::size_t kEngineMessageBytes = 1 << 20;

// may wait for an engine that does not read
inline constexpr std::size_t kChannelQueueBytes = 4 << 20;

// The most messages that wait for one peer, per direction. Beyond it the sender
// blocks or send() refuses.
inline constexpr int kEnrolQueue = 4;
inline constexpr int kControlQueue = 32;
inline constexpr int kBlobSendQueue = 16;  // at least the requests that a receiver keeps open
// More than a receiver asks a peer for at once. If a connection breaks while
// its queue is full, libzmq 4.3.4 may stop the process (its issue 4364).
inline constexpr int kBlobReceiveQueue = 16;

// The enrol endpoint is open to strangers. The oldest connection makes room for
// a new one; a connection that sends more than its limit is closed.
inline constexpr std::size_t kEnrolConnections = 128;
inline constexpr std::uint64_t kEnrolConnectionBytes = 64 << 10;
// Limits on unfinished messages at control and blob. The first is for all
// connections together that have delivered no message. The others are for all
// connections of one member. They exceed what the queues above hold, and what a
// receiver asks a peer for at once.
inline constexpr std::uint64_t kStrangersBytes = 64 << 20;
inline constexpr std::uint64_t kControlUnreadBytes = 12 << 20;
inline constexpr std::uint64_t kBlobUnreadBytes = 40 << 20;

inline constexpr std::size_t kNameBytes =
    63;  // names of nodes, runs, datasets: [a-z0-9][a-z0-9._-]*
inline constexpr std::size_t kReasonBytes = 1024;
inline constexpr std::size_t kLogLines = 200;
inline constexpr std::size_t kLogLineBytes = 512;
inline constexpr std::size_t kSlots = 64;
inline constexpr std::size_t kReplicas = 128;          // assigned to one node
inline constexpr std::uint32_t kCopies = 16;           // of a checkpoint
inline constexpr std::uint32_t kGenerations = 0xffff;  // of epochs: 16 bits
inline constexpr std::size_t kPageItems = 500;
inline constexpr std::size_t kClasses = 2000;
inline constexpr std::size_t kTextEncoderBytes = 64;      // its name
inline constexpr std::uint32_t kCaptionDim = 1 << 16;     // numbers of a token
inline constexpr double kInterpolation = 64;              // of a PixArt's positions
inline constexpr std::uint32_t kCaptionTokens = 1 << 16;  // of a caption
inline constexpr std::uint32_t kPartitions = 1024;
inline constexpr std::size_t kDatasetFiles = 1000;
inline constexpr std::size_t kTransfers = 8;        // of one heartbeat
inline constexpr std::size_t kTransferSources = 4;  // the largest
inline constexpr std::size_t kPeerFaults = 8;       // of one heartbeat
inline constexpr std::size_t kNoticeBytes = 128;    // a platform's word
inline constexpr std::uint64_t kLeavesInMs = 86'400'000;
inline constexpr std::size_t kDamagedChunks = 16;  // named of one object
inline constexpr std::uint64_t kSteps = 1'000'000'000;
inline constexpr double kPriceMost = 10'000;  // of a node, dollars an hour
inline constexpr double kDollarsMost = 1e9;   // of a run's budget
inline constexpr std::uint64_t kTokenUses = 1'000'000;
inline constexpr std::uint64_t kTokenTtlSeconds = 10ULL * 365 * 86400;

// Gossip: limits of a record, a message, an author and a table. Beyond the
// number of records a table drops the least important first (gossip/table.h).
inline constexpr std::size_t kRecordBytes = 2048;  // of a body
inline constexpr std::size_t kCertificateBytes = 512;
inline constexpr std::size_t kRecordHolds = 64;
inline constexpr std::size_t kRecordTextBytes = 128;  // an address, a host label, a device's name
inline constexpr std::uint64_t kRecordLifetimeLeastMs = 60'000;
inline constexpr std::uint64_t kRecordLifetimeMs =
    11ULL * 365 * 86'400'000;                                        // longer than a certificate
inline constexpr std::uint64_t kNodeLifetimeMs = 7ULL * 86'400'000;  // of what a node signs
inline constexpr std::uint64_t kRecordVersion = std::uint64_t{1} << 62;
inline constexpr std::size_t kGossipMessageBytes = 192 << 10;
inline constexpr std::size_t kGossipBuckets = 256;
inline constexpr std::size_t kGossipHeads = 2048;  // of one message
inline constexpr std::size_t kGossipListings = 16;
inline constexpr std::size_t kGossipWants = 256;
inline constexpr std::size_t kGossipMessageRecords = 64;
inline constexpr std::size_t kGossipRecords = 32'768;
inline constexpr std::size_t kGossipTableBytes = 64 << 20;
inline constexpr std::size_t kGossipAuthorRecords = 64;
inline constexpr std::size_t kGossipRunRecords = 4096;  // about the experts of one run

}  // namespace skerry::protocol
