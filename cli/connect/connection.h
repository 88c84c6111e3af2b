// SPDX-License-Identifier: Apache-2.0
// The real AdminClient: a context file, a connection to its coordinator, chunks
// over blob.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/connect/admin_client.h"
#include "cli/shell/surroundings.h"
#include "protocol/transport.h"

namespace skerry::cli {

// `readmission`: how to come back where the coordinator does not know the key
// (protocol/client.h); empty: not at all.
std::unique_ptr<AdminClient> make_connection(std::unique_ptr<protocol::ClientTransport> transport,
                                             Place place, const Clock& clock,
                                             const pb::EnrolRequest& readmission = {});

// Dials nothing before the first question. `clock` must outlive what is
// returned.
Result<std::unique_ptr<AdminClient>> open_connection(const std::string& context_path,
                                                     const Clock& clock);

// Enrols a fresh key with the token and writes the context. kInvalid for a
// token that is for nodes.
Result<Surroundings::LoggedIn> enrol_person(const std::string& token, const std::string& name,
                                            const std::string& context_path, const Clock& clock);

}  // namespace skerry::cli
