// SPDX-License-Identifier: Apache-2.0
// What clouds say before they end a machine. Each function reads one platform's
// answer; it is pure.
//
// RETURNS: what the answer announces; nothing if it announces nothing.
// ON FAILURE: kInvalid if the answer is not what the platform documents, or if
// its deadline is past or more than kNoticeMost away. The caller logs it.
// THREADS: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace skerry::daemon {

inline constexpr Duration kNoticeMost = std::chrono::hours(1);
inline constexpr Duration kGcpNotice = std::chrono::seconds(30);  // what the platform promises

struct Notice {
  std::optional<Duration> left;  // until the end; none: advice to expect it
  std::string what;              // "AWS: terminate"
  std::string id;                // the same for the same announcement
  bool operator==(const Notice&) const = default;
};
using Announced = Result<std::optional<Notice>>;

// /latest/meta-data/spot/instance-action
Announced parse_aws_action(long status, std::string_view body, std::int64_t unix_ms);
// /latest/meta-data/events/recommendations/rebalance
Announced parse_aws_rebalance(long status, std::string_view body);
// /computeMetadata/v1/instance/preempted
Announced parse_gcp_preempted(long status, std::string_view body);
// /metadata/scheduledevents: the nearest event that ends machine `own_name`.
// Its id is the EventId that an acknowledgement names. Events that have begun
// do not count.
Announced parse_azure_events(long status, std::string_view body, std::string_view own_name,
                             std::int64_t unix_ms);
// RETURNS: the body that has Azure begin the event now.
std::string azure_acknowledgement(const std::string& event_id);

// A token or a machine's name: what may stand in a header or is compared.
// ON FAILURE: kInvalid if it is empty, over 1 KiB or not printable ASCII.
Result<std::string> parse_word(long status, std::string_view body);

}  // namespace skerry::daemon
