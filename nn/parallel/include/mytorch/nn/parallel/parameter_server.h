// Training with a parameter server: servers keep parameters and optimizer, workers bring gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/optim/lbfgs.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/nn/parallel/zero_redundancy_optimizer.h"
#include "mytorch/nn/serialize.h"

namespace mytorch::nn {

struct ParameterServerOptions {
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  // By how many gradients a worker may be ahead of the slowest one. 0: synchronous.
  int64_t staleness = 0;
  // Ranks of the group; a rank may be both. None: all ranks.
  std::vector<int> servers = {}, workers = {};
  distributed::Group group = {};  // of the CPU, whatever the device of the parameters; world()
};

namespace detail {

// Throws Error(kValue) for options that contradict the group, and fills in what is left out.
ParameterServerOptions checked(ParameterServerOptions options);

// What a server does beside its optimizer.
class ServedParameters {
 public:
  // Collective.
  ServedParameters(const OptimizerShards& shards, const ParameterServerOptions& options);
  ~ServedParameters();
  // The parameters of this server, in the same groups as those of the model.
  optim::ParamGroups served() const;
  // Serves, with an update whenever gradients have come.
  void start(std::function<void()> step);
  void stop();

  void pull();
  void push();
  void wait();
  void close();
  int64_t clock() const;
  int64_t staleness() const;
  std::vector<int64_t> clocks() const;
  void between_steps(const std::function<void()>& work);
  // The values of this server's parameters in a state, as "parameter3.value": they are added;
  // compared with the parameters, with a result of what else the state has; taken and published.
  // Called between steps.
  void add_values(TensorMap* state) const;
  TensorMap check_values(const TensorMap& state) const;
  void set_values(const TensorMap& state);
  // Collective. Does `work`; if it throws on a rank, all ranks throw: that one the same, and the
  // others Error(kValue), which names it.
  void agree(const char* op, const std::function<void()>& work) const;
  void meet();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

// Parameters are divided among the servers. A worker computes gradients with its copy of the
// model, push()es each to the server of its parameter, and pull()s the new values. An optimizer of
// class O runs on each server; no rank waits for another one but where this is said.
//
//   nn::ParameterServer<nn::optim::SGD> server(net.parameters(), {.lr = 0.1}, {.staleness = 4});
//   for (const auto& batch : loader) {
//     server.pull();
//     net.zero_grad();
//     loss(net(batch.data), batch.target).backward();
//     server.push();
//   }
//   server.close();
//
// With `staleness` 0, an update has the mean of all workers' gradients, added up in the order of
// the ranks: with equal parts of each batch, the results are those of one process. A worker that
// has closed is left out of the mean. Otherwise each
// gradient is an update of its own, and a worker that has brought c gradients goes on when every
// other one has brought c - staleness, and these have been applied (stale synchronous parallel; Ho
// et al., NeurIPS 2013). Its own gradients are always in what it pulls.
//
// Who applies them? One-sided calls could let a worker update the parameters itself, under a lock.
// It would move the state of the optimizer, too, there and back, two or three times the bytes of
// the parameters, and only optimizers whose state is known beforehand could be used. Here gradients
// go to a place of the server's window that is this worker's own, by one call of MPI_Put, and a
// counter is raised by another. A thread of the server looks at the counters, and updates its
// parameters by an ordinary optimizer. Each gradient is applied once, because its place is
// overwritten only when the server's counter says that it has been applied. A server publishes
// values and counters by one call, so a worker never sees a parameter in the middle of an update.
// The places take the memory of the gradients of all workers, divided among the servers.
//
// Throws what distributed::Window does; also Error(kIo) on a worker whose server could not update,
// with the text of its error, and Error(kIo) that names the worker which the others wait for, if it
// dies, ends, or does not come by the deadline of the group.
template <class O>
class ParameterServer {
 public:
  static_assert(!std::is_same_v<O, optim::LBFGS>,
                "LBFGS computes the loss several times in a step: a server cannot");
  using Args = typename O::Args;
  // Collective. The servers begin with the parameters of rank 0, and all ranks get these.
  explicit ParameterServer(optim::ParamGroups parameters, Args options = {},
                           ParameterServerOptions server = {})
      : ParameterServer(std::move(parameters), std::move(options),
                        detail::checked(std::move(server)), 0) {}
  // Without close() before, the servers of this rank stop at once, and others that need them get an
  // error.
  ~ParameterServer() { served_.stop(); }
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Copies the values of all servers to this rank's parameters, when they contain the gradients
  // that the bound asks for. A rank that is no worker gets the present values.
  void pull() { served_.pull(); }
  // Gives away the gradients of this rank's parameters, which may change afterwards. Parameters
  // without a gradient are left out; a parameter for which no worker has one is not updated.
  void push() { served_.push(); }
  // Waits until the gradients that this worker has pushed are applied.
  void wait() { served_.wait(); }
  // Ends the training: waits until all workers have closed, however long they train, whose
  // gradients then are all applied, and pulls. Others do not wait for a worker that has closed.
  // Collective.
  void close() { served_.close(); }

  // The number of gradients that this worker has pushed, and how many fewer of another one the
  // values of the last pull() contain, at most: never more than the bound.
  int64_t clock() const { return served_.clock(); }
  int64_t staleness() const { return served_.staleness(); }
  // The number of gradients of each worker that all servers have applied.
  std::vector<int64_t> clocks() const { return served_.clocks(); }

  // Runs `work` with this server's optimizer between two of its steps: to change options, as
  // `optimizer.set_lr(0, 0.01)`, on all servers alike.
  void with_optimizer(const std::function<void(O&)>& work) {
    served_.between_steps([&] { work(optimizer_); });
  }

  // This server's part of the state, by the names of an O with all parameters, and the values of
  // its parameters ("parameter3.value"); of one moment of this server. All servers have the same
  // moment if the workers have called wait() and met.
  TensorMap state_dict() {
    TensorMap state;
    served_.between_steps([&] {
      for (const auto& [name, tensor] : shards_.with_whole_names(optimizer_.state_dict())) {
        state[name] = tensor.clone();
      }
      served_.add_values(&state);
    });
    return state;
  }
  // Takes this server's part of such a state, which may be that of all servers. Collective; no
  // gradient is under way. If a rank refuses its part, all ranks throw, and nothing changes.
  void load_state_dict(const TensorMap& state) {
    served_.between_steps([&] {
      TensorMap before;
      for (const auto& [name, tensor] : optimizer_.state_dict()) before[name] = tensor.clone();
      bool taken = false;
      try {
        served_.agree("ParameterServer::load_state_dict", [&] {
          optimizer_.load_state_dict(shards_.with_own_names(served_.check_values(state)));
          taken = true;
        });
      } catch (...) {
        if (taken) optimizer_.load_state_dict(before);
        throw;
      }
      served_.set_values(state);
    });
    served_.meet();
  }

 private:
  ParameterServer(optim::ParamGroups parameters, Args options, const ParameterServerOptions& server,
                  int)
      : shards_(std::move(parameters), server.group, server.servers, "ParameterServer"),
        served_(checked(shards_, options), server),
        optimizer_(served_.served(), options) {
    served_.start([this] { optimizer_.step(); });
  }
  // Lets all ranks refuse what O refuses of any parameter.
  static const detail::OptimizerShards& checked(const detail::OptimizerShards& shards,
                                                const Args& options) {
    const O of_all(shards.all(), options);
    return shards;
  }

  detail::OptimizerShards shards_;
  detail::ServedParameters served_;
  O optimizer_;
};

}  // namespace mytorch::nn
