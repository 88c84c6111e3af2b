// SPDX-License-Identifier: Apache-2.0
// A person's client in a simulation: one request after the other, each repeated
// until it is answered, as the CLI does. Its exchange serves the dataset's
// files while the coordinator pulls them.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>

#include "exchange/exchange.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

// Asks for a run of the smallest model; its caller sets what matters to it.
pb::AdminRequest smallest_run(const std::string& name, const std::string& dataset);
// Adds a dataset of one shard and one file of statistics a partition, and the
// router's. `put` makes each file, by its name and role.
using PutFile = std::function<pb::ObjectRef(const std::string& name, const std::string& role)>;
pb::AdminRequest smallest_dataset(const std::string& name, std::uint32_t partitions,
                                  const PutFile& put);

class AdminClient final : public NetworkClient {
 public:
  using Done = std::function<void(
      const pb::ControlReply&)>;  // an AdminReply, an Ack or an error that is final

  AdminClient(World& world, Identity identity);
  void start();
  void ask(pb::AdminRequest request, Done done = {});
  // Says it once, and waits for nothing, as a second terminal does.
  void say(const pb::AdminRequest& request);
  bool is_idle() const { return asked_.empty(); }
  void add_file(const Hash& manifest) { files_.insert(manifest); }

  // NetworkClient
  void opened(Endpoint endpoint) override;
  void lost(Endpoint endpoint) override;
  void refused(Endpoint) override {}
  void received(Endpoint endpoint, const std::string& bytes) override;

 private:
  struct Asked {
    pb::AdminRequest request;
    Done done;
  };
  void say_hello();
  void say_next();
  void send(const pb::ControlRequest& request);
  void again_later();
  void on_blob(const std::string& bytes);
  void serve();

  World& world_;
  Identity identity_;
  std::set<Hash> files_;
  exchange::Exchange exchange_;
  std::deque<Asked> asked_;
  bool greeted_ = false;
  std::uint64_t last_id_ = 0;
  std::uint64_t hello_id_ = 0;
  std::uint64_t waits_for_ = 0;
  std::uint64_t retry_ = 0;
};

}  // namespace skerry::simulation
