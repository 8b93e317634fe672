// What a rank knows of a parameter server, as a server and as a worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "mytorch/distributed/window.h"
#include "mytorch/nn/parallel/parameter_server.h"
#include "nn/parallel/server_page.h"

namespace mytorch::nn::detail {

struct ServedParameters::State {
  const OptimizerShards& shards;
  ParameterServerOptions options;
  distributed::Window window;
  std::vector<served::Layout> layouts;   // of all servers
  const served::Layout* mine = nullptr;  // of this one
  int64_t worker = -1;                   // the place of this rank among the workers
  int64_t clock = 0, staleness = 0;
  Tensor received;           // a page, of one server after the other
  std::vector<Tensor> sent;  // a place of each server

  // Of this server. The mutex guards its values and its page.
  std::mutex mutex;
  Tensor page;
  std::vector<Tensor> values;  // by the number of a parameter
  std::vector<Tensor> places;  // of the workers' gradients
  std::function<void()> step;
  std::atomic<bool> stopping{false};
  std::thread thread;

  State(const OptimizerShards& given, const ParameterServerOptions& given_options)
      : shards(given), options(given_options) {}

  // ---- the server ----

  bool synchronous() const { return options.staleness == 0; }
  // Lets the workers see values and counters.
  void publish() const {
    const int64_t begin = mine->state();
    window.put(page.narrow(0, begin, mine->page_bytes() - begin), mine->rank, begin);
  }
  void apply(const std::vector<int64_t>& workers);
  bool serve_once();
  void serve();

  // ---- the worker ----

  Tensor head_of(size_t server) const;
  std::optional<int> late(size_t server, int64_t needed, int64_t own) const;
  void wait_for(const char* op, int64_t needed, int64_t own) const;
  int64_t needed() const { return options.staleness >= clock ? 0 : clock - options.staleness; }
  void fetch_pages();
  Tensor page_of(const served::Layout& layout) const {
    return received.narrow(0, 0, layout.page_bytes());
  }
  void pack() const;
};

}  // namespace mytorch::nn::detail
