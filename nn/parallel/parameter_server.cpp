#include "mytorch/nn/parallel/parameter_server.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/to.h"
#include "mytorch/tensor_values.h"
#include "nn/parallel/served_state.h"

namespace mytorch::nn::detail {

using served::Layout;

ParameterServerOptions checked(ParameterServerOptions options) {
  if (!options.group.defined()) options.group = distributed::world();
  const int size = options.group.size();
  const auto check = [&](std::vector<int>* ranks, const char* name) {
    if (ranks->empty()) {
      ranks->resize(static_cast<size_t>(size));
      std::iota(ranks->begin(), ranks->end(), 0);
    }
    std::sort(ranks->begin(), ranks->end());
    for (size_t i = 0; i < ranks->size(); ++i) {
      const int rank = (*ranks)[i];
      if (rank < 0 || rank >= size || (i > 0 && (*ranks)[i - 1] == rank)) {
        fail(ErrorCode::kValue, "[ParameterServer] ", name, " has rank ", rank,
             ": name ranks of the group, 0 to ", size - 1, ", once each");
      }
    }
  };
  check(&options.servers, "servers");
  check(&options.workers, "workers");
  if (options.staleness < 0) {
    fail(ErrorCode::kValue, "[ParameterServer] staleness is ", options.staleness,
         ": it must be 0, more, or kUnbounded");
  }
  return options;
}

// ---- the worker ----

// Returns the counters of a server. Throws if it has failed.
Tensor ServedParameters::State::head_of(size_t server) const {
  const Layout& layout = layouts[server];
  Tensor head = mytorch::empty({layout.head_bytes()}, kUInt8);
  window.poll(head, layout.rank, 0);
  if (served::number_at(head, layout.state()) == served::kFailed) {
    fail(ErrorCode::kIo, "[ParameterServer] the server on rank ", layout.rank,
         " could not update its parameters: ", served::message_of(head, layout));
  }
  return head;
}

// Returns the rank for which this one waits until a server has applied `needed` gradients of each
// worker, and `own` of this one.
std::optional<int> ServedParameters::State::late(size_t server, int64_t needed, int64_t own) const {
  const Layout& layout = layouts[server];
  const Tensor head = head_of(server);
  const auto number = [&](int64_t offset) { return served::number_at(head, offset); };
  bool ready = worker < 0 || number(layout.applied(worker)) >= own;
  for (int64_t j = 0; j < layout.workers; ++j) {
    ready = ready && (number(layout.gone(j)) != 0 || number(layout.applied(j)) >= needed);
  }
  if (ready) return std::nullopt;
  for (int64_t j = 0; j < layout.workers; ++j) {
    if (number(layout.left(j)) == 0 && number(layout.pushed(j)) < needed) {
      return options.workers[static_cast<size_t>(j)];
    }
  }
  return layout.rank;
}

void ServedParameters::State::wait_for(const char* op, int64_t needed, int64_t own) const {
  for (size_t server = 0; server < layouts.size(); ++server) {
    window.wait(op, [&] { return late(server, needed, own); });
  }
}

// Gets the pages of all servers, and copies their values to the parameters.
void ServedParameters::State::fetch_pages() {
  const NoGradGuard no_grad;
  int64_t slowest = clock;
  for (const Layout& layout : layouts) {
    const Tensor got = page_of(layout);
    window.get(got, layout.rank, 0);
    for (size_t i = 0; i < layout.numbers.size(); ++i) {
      const Tensor& parameter = shards.parameters()[layout.numbers[i]];
      parameter.detach().copy_(served::view_of(got, layout.values(), layout, i));
    }
    for (int64_t j = 0; j < layout.workers; ++j) {
      if (served::number_at(got, layout.gone(j)) != 0) continue;
      slowest = std::min(slowest, served::number_at(got, layout.applied(j)));
    }
  }
  staleness = clock - slowest;
}

// Packs the gradients for all servers, as their places have them.
void ServedParameters::State::pack() const {
  const NoGradGuard no_grad;
  for (size_t server = 0; server < layouts.size(); ++server) {
    const Layout& layout = layouts[server];
    const Tensor& to = sent[server];
    for (size_t i = 0; i < layout.numbers.size(); ++i) {
      const Tensor& parameter = shards.parameters()[layout.numbers[i]];
      const Tensor gradient = parameter.grad();
      static_cast<char*>(to.data_ptr())[i] = gradient.defined() ? 1 : 0;
      if (!gradient.defined()) continue;
      served::view_of(to, layout.gradients(), layout, i).copy_(gradient.detach());
    }
  }
}

// ---- both ----

namespace {

// Throws on all ranks if one has other parameters or options than rank 0.
void check_same_parameters(const OptimizerShards& shards, const ParameterServerOptions& options) {
  const distributed::Group& group = shards.group();
  // A number for the options, the types and the shapes, in their order.
  uint64_t hash = 14695981039346656037u;
  const auto add = [&](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u;
  };
  add(options.staleness);
  for (const std::vector<int>* ranks : {&options.servers, &options.workers}) {
    add(static_cast<int64_t>(ranks->size()));
    for (const int rank : *ranks) add(rank);
  }
  for (const Tensor& parameter : shards.parameters()) {
    add(static_cast<int64_t>(parameter.dtype()));
    add(parameter.dim());
    for (const int64_t size : parameter.sizes()) add(size);
  }
  const auto count = static_cast<int64_t>(shards.parameters().size());
  const std::vector<int64_t> numbers = {count, static_cast<int64_t>(hash)};
  const Tensor mine = mytorch::tensor(numbers).to(group.device());
  const Tensor all = mytorch::empty({2 * group.size()}, kInt64, group.device());
  group.all_gather(all, mine);
  const std::vector<int64_t> found = all.to_vector<int64_t>();
  for (size_t rank = 1; rank < static_cast<size_t>(group.size()); ++rank) {
    if (found[2 * rank] == found[0] && found[2 * rank + 1] == found[1]) continue;
    fail(ErrorCode::kValue, "[ParameterServer] rank ", rank, " has ", found[2 * rank],
         " parameters, and rank 0 ", found[0],
         ", or other ones, or other options: give all ranks the same types and shapes, in the same "
         "order, and the same options");
  }
}

}  // namespace

ServedParameters::ServedParameters(const OptimizerShards& shards,
                                   const ParameterServerOptions& options)
    : state_(std::make_unique<State>(shards, options)) {
  State& self = *state_;
  const distributed::Group& group = shards.group();
  const std::vector<Tensor>& parameters = shards.parameters();
  check_same_parameters(shards, options);
  std::vector<int> owners;
  for (size_t i = 0; i < parameters.size(); ++i) owners.push_back(shards.owner(i));
  self.layouts = served::layouts(parameters, owners, options.servers, options.workers.size());
  int64_t page_bytes = 0;
  for (const Layout& layout : self.layouts) {
    if (layout.rank == group.rank()) self.mine = &layout;
    page_bytes = std::max(page_bytes, layout.page_bytes());
    self.sent.push_back(served::memory(layout.place_bytes()));
  }
  self.received = served::memory(page_bytes);
  const auto place = std::find(options.workers.begin(), options.workers.end(), group.rank());
  if (place != options.workers.end()) self.worker = place - options.workers.begin();
  self.window = distributed::Window(group, self.mine != nullptr ? self.mine->window_bytes() : 0);
  if (group.rank() == 0) {
    const NoGradGuard no_grad;
    for (const Layout& layout : self.layouts) {
      const Tensor first = self.page_of(layout);
      for (size_t i = 0; i < layout.numbers.size(); ++i) {
        const Tensor& parameter = parameters[layout.numbers[i]];
        served::view_of(first, layout.values(), layout, i).copy_(parameter.detach());
      }
      self.window.put(first, layout.rank, 0);
    }
  }
  group.barrier();
  self.fetch_pages();
  if (self.mine == nullptr) return;
  self.page = served::memory(self.mine->page_bytes());
  self.window.get(self.page, group.rank(), 0);
  self.values.resize(parameters.size());
  for (size_t i = 0; i < self.mine->numbers.size(); ++i) {
    const size_t number = self.mine->numbers[i];
    self.values[number] = served::view_of(self.page, self.mine->values(), *self.mine, i);
    self.values[number].requires_grad_();
  }
  for (size_t j = 0; j < options.workers.size(); ++j) {
    self.places.push_back(served::memory(self.mine->place_bytes()));
  }
}

ServedParameters::~ServedParameters() { stop(); }

optim::ParamGroups ServedParameters::served() const {
  return state_->mine != nullptr ? state_->shards.own(state_->values) : state_->shards.own();
}

void ServedParameters::start(std::function<void()> step) {
  if (state_->mine == nullptr) return;
  state_->step = std::move(step);
  state_->thread = std::thread([self = state_.get()] { self->serve(); });
}

void ServedParameters::stop() {
  state_->stopping = true;
  if (state_->thread.joinable()) state_->thread.join();
}

void ServedParameters::pull() {
  if (state_->worker >= 0) {
    state_->wait_for("ParameterServer::pull", state_->needed(), state_->clock);
  }
  state_->fetch_pages();
}

void ServedParameters::push() {
  State& self = *state_;
  if (self.worker < 0) {
    fail(ErrorCode::kValue, "[ParameterServer::push] rank ", self.shards.group().rank(),
         " is no worker: name it among the workers, or let it only pull and close");
  }
  self.wait_for("ParameterServer::push", self.needed(), self.clock);
  self.pack();  // before the first is sent: an error leaves all servers without these gradients
  for (size_t server = 0; server < self.layouts.size(); ++server) {
    const Layout& layout = self.layouts[server];
    self.window.put(self.sent[server], layout.rank, layout.place(self.worker));
    self.window.fetch_add(1, layout.rank, layout.pushed(self.worker));
  }
  ++self.clock;
}

void ServedParameters::wait() {
  const State& self = *state_;
  if (self.worker < 0) return;
  self.wait_for("ParameterServer::wait", self.synchronous() ? self.clock : 0, self.clock);
}

void ServedParameters::close() {
  State& self = *state_;
  const char* const op = "ParameterServer::close";
  for (const Layout& layout : self.layouts) {
    if (self.worker >= 0) self.window.fetch_add(1, layout.rank, layout.left(self.worker));
  }
  for (size_t server = 0; server < self.layouts.size(); ++server) {
    const Layout& layout = self.layouts[server];
    const auto finished = [&]() -> std::optional<int> {
      const Tensor head = self.head_of(server);
      if (served::number_at(head, layout.state()) == served::kFinished) return std::nullopt;
      for (int64_t j = 0; j < layout.workers; ++j) {
        if (served::number_at(head, layout.left(j)) == 0) {
          return self.options.workers[static_cast<size_t>(j)];
        }
      }
      return layout.rank;
    };
    self.window.wait(op, finished, /*deadline=*/false);  // the others may train for long
  }
  self.fetch_pages();
  stop();
  self.window.close();
}

int64_t ServedParameters::clock() const { return state_->clock; }
int64_t ServedParameters::staleness() const { return state_->staleness; }

std::vector<int64_t> ServedParameters::clocks() const {
  const State& self = *state_;
  std::vector<int64_t> result(self.options.workers.size(), std::numeric_limits<int64_t>::max());
  for (size_t server = 0; server < self.layouts.size(); ++server) {
    const Tensor head = self.head_of(server);
    for (size_t j = 0; j < result.size(); ++j) {
      const int64_t offset = self.layouts[server].applied(static_cast<int64_t>(j));
      result[j] = std::min(result[j], served::number_at(head, offset));
    }
  }
  return result;
}

void ServedParameters::agree(const char* op, const std::function<void()>& work) const {
  const distributed::Group& group = state_->shards.group();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const int64_t mine = error != nullptr ? group.rank() : group.size();
  const Tensor first = mytorch::full({1}, mine, kInt64, group.device());
  group.all_reduce(first, {distributed::ReduceOp::kMin});
  if (error != nullptr) std::rethrow_exception(error);
  const int64_t failed = first.item<int64_t>();
  if (failed == group.size()) return;
  fail(ErrorCode::kValue, "[", op, "] rank ", failed,
       " refuses its arguments, so no rank does anything: its own message says why");
}

void ServedParameters::meet() { state_->shards.group().barrier(); }

}  // namespace mytorch::nn::detail
