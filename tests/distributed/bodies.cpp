#include "tests/distributed/bodies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "mytorch/device_graph.h"
#include "mytorch/distributed.h"
#include "mytorch/distributed/functional.h"
#include "mytorch/mytorch.h"

namespace mytorch::distributed::bodies {

Device here = kCPU;
int64_t many = 3000;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos,
           "the message \"" + std::string(error.what()) + "\" lacks \"" + part + "\"");
    return;
  }
  throw std::runtime_error("no error with \"" + part + "\"");
}

namespace {

constexpr ScalarType kTypes[] = {kBool,    kUInt8,    kInt8,    kInt16,   kInt32,     kInt64,
                                 kFloat16, kBFloat16, kFloat32, kFloat64, kComplex64, kComplex128};

// The element that a rank brings: small, so that sums and products of 8 are exact in every type.
double element(int rank, int64_t i) {
  static constexpr double kValues[] = {1, 2, 0, 1, 1, 2, 1};
  return kValues[(static_cast<size_t>(i) * 3 + static_cast<size_t>(rank)) % 7];
}

Tensor tensor_of(int64_t n, ScalarType dtype, const std::function<double(int64_t)>& value) {
  const Tensor x = mytorch::empty({n}, kFloat64);
  for (int64_t i = 0; i < n; ++i) x.data<double>()[i] = value(i);
  // The imaginary part is the element before it.
  if (is_complex(dtype))
    return mytorch::complex(x, x.roll(IntList{1}, IntList{0})).to(dtype).to(here);
  return x.to(dtype).to(here);
}
Tensor operand(int rank, int64_t n, ScalarType dtype) {
  return tensor_of(n, dtype, [&](int64_t i) { return element(rank, i); });
}

void expect_close(const Tensor& found, const Tensor& expected, const std::string& what) {
  expect(found.sizes() == expected.sizes(), what + ": wrong shape");
  expect(found.dtype() == expected.dtype(), what + ": wrong type");
  if (found.numel() == 0) return;
  const ScalarType wide = is_complex(found.dtype()) ? kComplex128 : kFloat64;
  const double far = (found.to(wide) - expected.to(wide)).abs().max().item<double>();
  const double large = 1 + expected.to(wide).abs().max().item<double>();
  const ScalarType dtype = found.dtype();
  const double bound = dtype == kBFloat16                              ? 1.0 / 64
                       : dtype == kFloat16                             ? 1.0 / 512
                       : dtype == kFloat32 || dtype == kComplex64      ? 1e-6
                       : is_floating_point(dtype) || is_complex(dtype) ? 1e-14
                                                                       : 0;
  expect(far <= bound * large, what + ": found " + found.str() + ", expected " + expected.str());
}

// The reduction of all ranks' operands, by operators on one rank.
Tensor reduced(const std::vector<Tensor>& operands, Reduction reduction) {
  const ScalarType dtype = operands[0].dtype();
  const ScalarType wide = is_complex(dtype)          ? kComplex128
                          : is_floating_point(dtype) ? kFloat64
                                                     : kInt64;
  Tensor result;
  for (const Tensor& x : operands) {
    Tensor next = x.to(wide);
    if (reduction.scale != 1) next = next * reduction.scale;
    if (!result.defined()) {
      result = next;
    } else if (reduction.op == ReduceOp::kProduct) {
      result = result * next;
    } else if (reduction.op == ReduceOp::kMin) {
      result = mytorch::minimum(result, next);
    } else if (reduction.op == ReduceOp::kMax) {
      result = mytorch::maximum(result, next);
    } else {
      result = result + next;
    }
  }
  if (reduction.op == ReduceOp::kAverage) {
    const auto n = static_cast<int64_t>(operands.size());
    result = wide == kInt64 ? mytorch::div(result, n, "trunc") : result / n;
  }
  if (dtype == kBool) return result.ne(0);
  return result.to(dtype);
}

bool defined_for(ScalarType dtype, Reduction r) {
  if (is_complex(dtype) && (r.op == ReduceOp::kMin || r.op == ReduceOp::kMax)) return false;
  if (dtype == kBool && r.op == ReduceOp::kAverage) return false;
  // NCCL's limits.
  if (here.is_cuda() && dtype == kInt16) return false;
  if (here.is_cuda() && is_complex(dtype) && r.op == ReduceOp::kProduct) return false;
  return r.scale == 1 || is_floating_point(dtype) || is_complex(dtype);
}

const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> all = {
      {ReduceOp::kSum},     {ReduceOp::kProduct},  {ReduceOp::kMin},       {ReduceOp::kMax},
      {ReduceOp::kAverage}, {ReduceOp::kSum, 0.5}, {ReduceOp::kAverage, 2}};
  return all;
}

std::string name_of(const char* what, ScalarType dtype, Reduction r, int64_t n) {
  return std::string(what) + " " + dtype_name(dtype) + " reduction " +
         std::to_string(static_cast<int>(r.op)) + " scale " + std::to_string(r.scale) + " of " +
         std::to_string(n);
}

std::vector<Tensor> operands_of_all(const Group& group, int64_t n, ScalarType dtype) {
  std::vector<Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(operand(rank, n, dtype));
  return all;
}

void reduce_every_type(const Group& group) {
  const int size = group.size(), rank = group.rank();
  for (const ScalarType dtype : kTypes) {
    for (const Reduction r : reductions()) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, many}) {
        if (n == 0 && is_complex(dtype)) continue;
        if (!defined_for(dtype, r)) {
          if (n == 1 && !here.is_cuda()) {  // the engine's refusals end the group
            expect_error([&] { group.all_reduce(operand(rank, n, dtype), r); }, "[all_reduce]");
          }
          continue;
        }
        const std::vector<Tensor> operands = operands_of_all(group, n, dtype);
        const Tensor expected = reduced(operands, r);
        const Tensor x = operands[static_cast<size_t>(rank)].clone();
        group.all_reduce(x, r);
        expect_close(x, expected, name_of("all_reduce", dtype, r, n));
        const int root = size - 1;
        const Tensor y = operands[static_cast<size_t>(rank)].clone();
        group.reduce(y, root, r);
        expect_close(y, rank == root ? expected : operands[static_cast<size_t>(rank)],
                     name_of("reduce", dtype, r, n));
        // The same elements as n rows for each rank.
        const std::vector<Tensor> wide = operands_of_all(group, n * size, dtype);
        const Tensor part = mytorch::empty({n}, dtype, here);
        group.reduce_scatter(part, wide[static_cast<size_t>(rank)], r);
        expect_close(part, reduced(wide, r).narrow(0, rank * n, n),
                     name_of("reduce_scatter", dtype, r, n));
      }
    }
  }
}

void move_every_type(const Group& group) {
  const int size = group.size(), rank = group.rank();
  for (const ScalarType dtype : kTypes) {
    for (const int64_t n : {int64_t{1}, int64_t{5}, int64_t{1001}}) {
      const std::string what = name_of("moving", dtype, {}, n);
      const std::vector<Tensor> operands = operands_of_all(group, n, dtype);
      const Tensor& mine = operands[static_cast<size_t>(rank)];
      const int root = size / 2;
      const Tensor x = mine.clone();
      group.broadcast(x, root);
      expect_close(x, operands[static_cast<size_t>(root)], what + ", broadcast");

      const Tensor joined = mytorch::cat(operands, 0);
      const Tensor all = mytorch::empty({n * size}, dtype, here);
      group.all_gather(all, mine);
      expect_close(all, joined, what + ", all_gather");
      const Tensor at_root = mytorch::empty({n * size}, dtype, here);
      group.gather(at_root, mine, root);
      if (rank == root) expect_close(at_root, joined, what + ", gather");
      const Tensor part = mytorch::empty({n}, dtype, here);
      group.scatter(part, rank == root ? joined : Tensor(), root);
      expect_close(part, mine, what + ", scatter");

      const Tensor sent = operand(rank, n * size, dtype);
      const Tensor received = mytorch::empty({n * size}, dtype, here);
      group.all_to_all(received, sent);
      for (int from = 0; from < size; ++from) {
        expect_close(received.narrow(0, from * n, n),
                     operand(from, n * size, dtype).narrow(0, rank * n, n), what + ", all_to_all");
      }
    }
  }
}

void move_uneven_counts(const Group& group) {
  const int size = group.size(), rank = group.rank();
  // Rank r has r rows of 3, rank 0 none.
  std::vector<int64_t> rows;
  std::vector<Tensor> parts;
  for (int r = 0; r < size; ++r) {
    rows.push_back(r);
    parts.push_back(operand(r, r * 3, kFloat32).reshape({r, 3}));
  }
  const int64_t total = size * (size - 1) / 2;
  const Tensor joined = mytorch::cat(parts, 0);
  const Tensor all = mytorch::empty({total, 3}, kFloat32, here);
  group.all_gather_v(all, parts[static_cast<size_t>(rank)], rows);
  expect_close(all, joined, "all_gather_v");

  std::vector<Tensor> operands;
  for (int r = 0; r < size; ++r)
    operands.push_back(operand(r, total * 3, kFloat32).reshape({total, 3}));
  const Tensor part = mytorch::empty({rank, 3}, kFloat32, here);
  group.reduce_scatter_v(part, operands[static_cast<size_t>(rank)], rows, {ReduceOp::kSum});
  expect_close(part, reduced(operands, {}).narrow(0, rank * (rank - 1) / 2, rank),
               "reduce_scatter_v");

  // Rank r sends r + to rows to rank `to`.
  const auto sends = [&](int from, int to) { return int64_t{from + to}; };
  std::vector<int64_t> sent_rows, received_rows;
  std::vector<Tensor> expected;
  for (int other = 0; other < size; ++other) {
    sent_rows.push_back(sends(rank, other));
    received_rows.push_back(sends(other, rank));
    int64_t first = 0, sum = 0;
    for (int to = 0; to < size; ++to) {
      if (to < rank) first += sends(other, to);
      sum += sends(other, to);
    }
    expected.push_back(
        operand(other, sum * 2, kInt64).reshape({sum, 2}).narrow(0, first, sends(other, rank)));
  }
  int64_t sum = 0;
  for (const int64_t n : sent_rows) sum += n;
  const Tensor sent = operand(rank, sum * 2, kInt64).reshape({sum, 2});
  const Tensor received = mytorch::all_to_all_single(sent, received_rows, sent_rows, group);
  expect_close(received, mytorch::cat(expected, 0), "all_to_all_single");
}

void take_any_strides(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const std::vector<Tensor> operands = operands_of_all(group, 24, kFloat32);
  const Tensor expected = reduced(operands, {}).reshape({4, 6});
  const Tensor mine = operands[static_cast<size_t>(rank)].reshape({4, 6});
  // A transposed tensor, and every second column.
  const Tensor turned = mine.t().contiguous().t();
  expect(!turned.is_contiguous() || size == 0, "the operand should have strides");
  group.all_reduce(turned);
  expect_close(turned, expected, "all_reduce of a transposed tensor");
  const Tensor wide = mytorch::zeros({4, 12}, kFloat32, here);
  const Tensor sliced = wide.slice(1, 0, 12, 2);
  sliced.copy_(mine);
  const uint64_t version = wide.version();
  group.all_reduce(sliced);
  expect_close(sliced, expected, "all_reduce of a sliced tensor");
  expect(wide.version() > version, "a write is not counted");
  expect(wide.slice(1, 1, 12, 2).abs().max().item<double>() == 0, "bytes between were written");
  expect_close(mytorch::all_reduce(mine.t(), "sum", group), expected.t(), "the operator");
  expect_close(mytorch::all_gather_into_tensor(
                   mytorch::full({1}, rank + 1.0, kFloat32, here).squeeze(), group),
               mytorch::arange(1, size + 1).to(kFloat32).to(here),
               "all_gather_into_tensor of a number");
}

void nan_wins(const Group& group) {
  if (here.is_cuda()) return;  // NCCL does not say
  for (const ScalarType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const Tensor x = mytorch::full({3}, group.rank() + 1.0, dtype, here);
      if (group.rank() == group.size() - 1) x[1].fill_(std::nan(""));
      group.all_reduce(x, {op});
      const std::vector<double> found = x.to_vector<double>();
      const double other = op == ReduceOp::kMin ? 1 : group.size();
      expect(found[0] == other && std::isnan(found[1]) && found[2] == other, "NaN does not win");
    }
  }
}

void differentiate(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const auto weights = [&](int of, int64_t n) { return operand(of, n, kFloat64) + 1; };
  // d(sum over ranks of w_r * y_r) / dx, y by the operator, w_r by hand.
  const auto gradient = [&](const Tensor& value, const std::function<Tensor(const Tensor&)>& f,
                            Tensor* result) {
    const Tensor x = value.clone().requires_grad_();
    *result = f(x);
    const Tensor w = weights(rank, result->numel()).reshape(result->sizes());
    (*result * w).sum().backward();
    return x.grad();
  };
  const Tensor value = operand(rank, 6 * size, kFloat64).reshape({3 * size, 2});
  std::vector<Tensor> all_weights;
  for (int r = 0; r < size; ++r) all_weights.push_back(weights(r, 6 * size).reshape({3 * size, 2}));
  const Tensor sum_of_weights = reduced(all_weights, {});
  Tensor y;
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::all_reduce(x, "sum", group); }, &y),
      sum_of_weights, "gradient of all_reduce");
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::all_reduce(x, "avg", group, 3.0); }, &y),
      sum_of_weights * (3.0 / size), "gradient of an average");
  const int root = size - 1;
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::reduce(x, root, "sum", group); }, &y),
      all_weights[static_cast<size_t>(root)], "gradient of reduce");
  expect_close(gradient(
                   value, [&](const Tensor& x) { return mytorch::broadcast(x, root, group); }, &y),
               rank == root ? sum_of_weights : mytorch::zeros_like(value), "gradient of broadcast");
  std::vector<Tensor> gathered;
  for (int r = 0; r < size; ++r) {
    gathered.push_back(weights(r, 6 * size * size).reshape({3 * size * size, 2}));
  }
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::all_gather_into_tensor(x, group); }, &y),
      reduced(gathered, {}).narrow(0, rank * 3 * size, 3 * size), "gradient of all_gather");
  std::vector<Tensor> scattered;
  for (int r = 0; r < size; ++r) scattered.push_back(weights(r, 6).reshape({3, 2}));
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::reduce_scatter_tensor(x, "sum", group); },
          &y),
      mytorch::cat(scattered, 0), "gradient of reduce_scatter");
  std::vector<Tensor> returned;
  for (int r = 0; r < size; ++r) {
    returned.push_back(all_weights[static_cast<size_t>(r)].narrow(0, rank * 3, 3));
  }
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::all_to_all_single(x, {}, {}, group); }, &y),
      mytorch::cat(returned, 0), "gradient of all_to_all");
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::gather_into_tensor(x, root, group); }, &y),
      weights(root, 6 * size * size)
          .reshape({3 * size * size, 2})
          .narrow(0, rank * 3 * size, 3 * size),
      "gradient of gather_into_tensor");
  expect_close(
      gradient(
          value, [&](const Tensor& x) { return mytorch::scatter_tensor(x, root, group); }, &y),
      rank == root ? mytorch::cat(scattered, 0) : mytorch::zeros_like(value),
      "gradient of scatter_tensor");
  // Rank r has r rows.
  std::vector<int64_t> rows;
  std::vector<Tensor> uneven, uneven_parts;
  const int64_t total = size * (size - 1) / 2;
  for (int r = 0; r < size; ++r) {
    rows.push_back(r);
    uneven.push_back(weights(r, 2 * total).reshape({total, 2}));
    uneven_parts.push_back(weights(r, 2 * r).reshape({r, 2}));
  }
  expect_close(gradient(
                   value.narrow(0, 0, rank),
                   [&](const Tensor& x) { return mytorch::all_gather_v(x, rows, group); }, &y),
               reduced(uneven, {}).narrow(0, rank * (rank - 1) / 2, rank),
               "gradient of all_gather_v");
  expect_close(
      gradient(
          mytorch::ones({total, 2}, kFloat64, here),
          [&](const Tensor& x) { return mytorch::reduce_scatter_v(x, rows, "avg", group, 3.0); },
          &y),
      mytorch::cat(uneven_parts, 0) * (3.0 / size), "gradient of reduce_scatter_v");
  // Twice.
  const Tensor x = operand(rank, 4, kFloat64).requires_grad_();
  const Tensor loss = mytorch::all_reduce(x * x, "sum", group).pow(2).sum();
  const Tensor first = autograd::grad({loss}, {x}, {}, {.create_graph = true})[0];
  first.sum().backward();
  expect(x.grad().defined(), "no second derivative");
}

// Second derivatives of operators that do not give all ranks the same: of the sum of w * y(x)^2,
// they are 2 * w of the place that an element goes to.
void differentiate_twice(const Group& group) {
  const int size = group.size(), rank = group.rank(), root = size - 1;
  const auto second = [&](int64_t n, const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = mytorch::full({n}, 3.0, kFloat64, here).requires_grad_();
    const Tensor y = f(x);
    const Tensor w = (operand(rank, y.numel(), kFloat64) + 1).reshape(y.sizes());
    const Tensor first = autograd::grad({(y * y * w).sum()}, {x}, {}, {.create_graph = true})[0];
    first.sum().backward();
    return x.grad();
  };
  const auto weights = [&](int of, int64_t n) { return (operand(of, n, kFloat64) + 1) * 2; };
  expect_close(
      second(2, [&](const Tensor& x) { return mytorch::gather_into_tensor(x, root, group); }),
      weights(root, 2 * size).narrow(0, 2 * rank, 2), "gather_into_tensor, twice");
  std::vector<Tensor> parts;
  for (int r = 0; r < size; ++r) parts.push_back(weights(r, 2));
  expect_close(
      second(2 * size, [&](const Tensor& x) { return mytorch::scatter_tensor(x, root, group); }),
      rank == root ? mytorch::cat(parts, 0) : mytorch::zeros({2 * size}, kFloat64, here),
      "scatter_tensor, twice");
  if (size == 1) return;
  // Rank 0 sends to the last one, the others do not take part.
  if (rank == 0) {
    expect_close(second(2, [&](const Tensor& x) { return mytorch::send(x, root, group); }),
                 weights(root, 2), "send, twice");
  } else if (rank == root) {
    (void)second(2, [&](const Tensor& x) { return mytorch::recv(x, 0, group); });
  }
}

void start_calls_together(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const Tensor a = operand(rank, 5, kFloat32), b = operand(rank, 8, kFloat64).reshape({4, 2});
  const Tensor turned = b.t();
  const Tensor all = mytorch::zeros({4 * size}, kInt64, here), mine = operand(rank, 4, kInt64);
  const uint64_t before = group.sequence();
  Work one;
  Work work = group.coalesced([&] {
    one = group.all_reduce(a, {}, true);
    group.all_reduce(turned, {ReduceOp::kMax}, true);
    group.all_gather(all, mine, true);
    expect(!one.done(), "started too early");
    expect_error(
        [&] {
          Work copy = one;
          copy.wait();
        },
        "wait after it");
    expect_error([&] { group.broadcast(a, 0); }, "pass async");
    expect_error([&] { (void)group.coalesced([] {}); }, "collects calls already");
  });
  work.wait();
  one.wait();
  expect(work.done() && group.sequence() == before + 3, "three calls");
  expect_close(a, reduced(operands_of_all(group, 5, kFloat32), {}), "coalesced all_reduce");
  expect_close(b.reshape({8}), reduced(operands_of_all(group, 8, kFloat64), {ReduceOp::kMax}),
               "coalesced all_reduce of a transposed tensor");
  expect_close(all, mytorch::cat(operands_of_all(group, 4, kInt64), 0), "coalesced all_gather");
  // None of the calls is made if one of them is wrong.
  Work lost;
  expect_error(
      [&] {
        (void)group.coalesced([&] {
          lost = group.all_reduce(a, {}, true);
          group.broadcast(a, size, true);
        });
      },
      "a rank of the group");
  expect(group.sequence() == before + 3, "a call was made");
  expect_error([&] { lost.wait(); }, "was not started");
  Work nothing = group.coalesced([] {});
  nothing.wait();
  group.barrier();
}

void pass_messages(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const Tensor mine = operand(rank, 100, kFloat32);
  const Tensor before = mytorch::empty({100}, kFloat32, here);
  group.exchange({{mine, (rank + 1) % size, true}, {before, (rank + size - 1) % size, false}});
  expect_close(before, operand((rank + size - 1) % size, 100, kFloat32), "a ring");
  if (size == 1) return;
  const Tensor strided = mytorch::zeros({100, 2}, kFloat32, here).select(1, 0);
  if (rank == 0) group.send(mine, 1);
  if (rank == 1) {
    group.recv(strided, 0);
    expect_close(strided, operand(0, 100, kFloat32), "a message");
  }
  if (rank == 0) expect_error([&] { group.send(mine, 0); }, "names itself");
}

void differentiate_messages(const Group& group) {
  const int size = group.size(), rank = group.rank(), root = size - 1;
  const auto weights = [&](int of, int64_t n) { return operand(of, n, kFloat64) + 1; };
  // The root weights what it gathers; the others add an empty tensor.
  const Tensor x = operand(rank, 6, kFloat64).reshape({3, 2}).requires_grad_();
  const Tensor all = distributed::gather(x, root, group);
  expect(all.size(0) == (rank == root ? 3 * size : 0), "gather: wrong shape");
  if (rank == root) {
    std::vector<Tensor> parts;
    for (int r = 0; r < size; ++r) parts.push_back(operand(r, 6, kFloat64).reshape({3, 2}));
    expect_close(all, mytorch::cat(parts, 0), "gather");
    (all * weights(0, 6 * size).reshape({3 * size, 2})).sum().backward();
  } else {
    all.sum().backward();
  }
  expect_close(x.grad(), weights(0, 6 * size).reshape({3 * size, 2}).narrow(0, rank * 3, 3),
               "gradient of gather");

  const Tensor whole = operand(root, 4 * size, kFloat64).reshape({2 * size, 2}).requires_grad_();
  const std::vector<int64_t> sizes = {2 * size, 2};
  const Tensor part = rank == root ? distributed::scatter(whole, root, group)
                                   : distributed::scatter(sizes, kFloat64, root, group);
  expect_close(part, whole.detach().narrow(0, rank * 2, 2), "scatter");
  (part * weights(rank, 4).reshape({2, 2})).sum().backward();
  if (rank == root) {
    std::vector<Tensor> parts;
    for (int r = 0; r < size; ++r) parts.push_back(weights(r, 4).reshape({2, 2}));
    expect_close(whole.grad(), mytorch::cat(parts, 0), "gradient of scatter");
  }
  if (size == 1) return;
  // From rank to rank: each adds its number, and the last weights the sum.
  const Tensor mine = mytorch::full({3}, rank, kFloat64, here).requires_grad_();
  Tensor sum = mine;
  if (rank > 0) sum = sum + distributed::recv(IntList{3}, kFloat64, rank - 1, group);
  if (rank < root) {
    distributed::send(sum, rank + 1, group).sum().backward();
  } else {
    expect_close(sum, mytorch::full({3}, size * (size - 1) / 2, kFloat64, here), "messages");
    (sum * weights(0, 3)).sum().backward();
  }
  expect_close(mine.grad(), weights(0, 3), "gradient of messages");
  expect_error(
      [&] { distributed::scatter(mytorch::zeros({2 * size + 1}, kFloat64, here), rank, group); },
      "multiple");
  group.barrier();
}

// The next exchange may begin before the one before has ended.
void exchange_later(const Group& group) {
  const int size = group.size(), rank = group.rank();
  std::vector<Tensor> received;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    received.push_back(mytorch::zeros({10 + i}, kFloat32, here).narrow(0, 0, 5 + i));
    works.push_back(group.exchange({{operand(rank, 5 + i, kFloat32), (rank + 1) % size, true},
                                    {received.back(), (rank + size - 1) % size, false}},
                                   /*async=*/true));
  }
  group.barrier();
  for (int i = 0; i < 20; ++i) {
    works[static_cast<size_t>(i)].wait();
    expect_close(received[static_cast<size_t>(i)],
                 operand((rank + size - 1) % size, 5 + i, kFloat32), "asynchronous exchange");
  }
}

void work_later(const Group& group) {
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(operand(group.rank(), 50 + i, kFloat32));
    works.push_back(group.all_reduce(tensors.back(), {}, true));
  }
  group.barrier();  // queues behind them
  for (int i = 0; i < 20; ++i) {
    works[static_cast<size_t>(i)].wait();
    expect_close(tensors[static_cast<size_t>(i)],
                 reduced(operands_of_all(group, 50 + i, kFloat32), {}), "asynchronous all_reduce");
  }
}

std::string bits_of(const Tensor& x) {
  const Tensor host = x.to(kCPU).contiguous();
  return {static_cast<const char*>(host.raw_data()), static_cast<size_t>(host.nbytes())};
}

// Sums that depend on the order of their terms have the same bits on all ranks and in each call.
void repeat_bits(const Group& group) {
  const int size = group.size();
  for (const ScalarType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    for (const int64_t n : {int64_t{1}, int64_t{5}, int64_t{64}, many}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        const Tensor mine = tensor_of(n, dtype, [&](int64_t i) {
          return std::sin(static_cast<double>(i * 17 + group.rank() * 5)) * (1 << (i % 9));
        });
        std::string first;
        for (int call = 0; call < 4; ++call) {
          const Tensor x = mine.clone();
          Work work = group.all_reduce(x, {op}, /*async=*/call % 2 == 1);
          work.wait();
          if (call == 0) first = bits_of(x);
          expect(bits_of(x) == first, "all_reduce gives other bits in another call");
          if (call != 0) continue;
          const Tensor all = mytorch::empty({n * size}, dtype, here);
          group.all_gather(all, x);
          for (int r = 0; r < size; ++r) {
            expect(bits_of(all.narrow(0, r * n, n)) == first,
                   "all_reduce gives other bits on rank " + std::to_string(r));
          }
        }
      }
    }
  }
}

void form_groups(const Group& group) {
  const int size = group.size(), rank = group.rank();
  // Odd and even ranks, in reverse order.
  const Group half = group.split(rank % 2, -rank);
  expect(half.size() == (size + 1 - rank % 2) / 2, "wrong size of a part");
  const Tensor x = mytorch::full({1}, rank, kFloat32, here);
  half.all_reduce(x);
  double sum = 0;
  for (int r = rank % 2; r < size; r += 2) sum += r;
  expect(x.item<double>() == sum, "wrong ranks in a part");
  const Tensor first = mytorch::full({1}, rank, kFloat32, here);
  half.broadcast(first, 0);
  expect(first.item<double>() == (size - 1) - ((size - 1) % 2 != rank % 2 ? 1 : 0), "wrong order");
  const Group none = group.split(rank == 0 ? std::nullopt : std::optional(0));
  expect(none.defined() == (rank != 0), "a rank without color has a group");
  if (rank == 0) expect_error([&] { none.barrier(); }, "undefined");
  const Group last = group.subgroup({size - 1});
  expect(last.defined() == (rank == size - 1), "wrong members");

  if (size % 2 == 0) {
    const DeviceMesh mesh(group, {{"dp", size / 2}, {"tp", 2}});
    expect(mesh.coordinate("tp") == rank % 2 && mesh.coordinate("dp") == rank / 2, "coordinates");
    expect(mesh.group("tp").size() == 2 && mesh.group("tp").rank() == rank % 2, "group of tp");
    expect(mesh.group("dp").size() == size / 2 && mesh.group("dp").rank() == rank / 2, "dp");
    expect(mesh.flatten({"dp", "tp"}).size() == size, "flatten");
    expect_error([&] { mesh.group("pp"); }, "the mesh has dp, tp");
  }
  expect_error([&] { DeviceMesh(group, {{"dp", size + 1}}); }, "must multiply to it");
}

void refuse_bad_calls(const Group& group) {
  const Tensor x = mytorch::zeros({3}, kFloat32, here);
  expect_error([&] { group.broadcast(x, group.size()); }, "must be a rank of the group");
  expect_error([&] { group.all_reduce(Tensor()); }, "undefined");
  expect_error([&] { group.all_gather(mytorch::zeros({3 * group.size() + 1}, kFloat32, here), x); },
               "[all_gather]");
  expect_error([&] { group.all_gather(mytorch::zeros({3 * group.size()}, kFloat64, here), x); },
               "convert one of them");
  expect_error([&] { mytorch::all_reduce(x, "median", group); }, "\"avg\"");
  expect_error([&] { mytorch::all_reduce(x, "max", group, 2.0); }, "leave it at 1");
  expect_error(
      [&] {
        mytorch::all_reduce(x, "sum", Handle{"Cache", std::make_shared<int>(1)});
      },
      "pass a distributed::Group");
  const Tensor leaf = mytorch::zeros({2}, kFloat32, here).requires_grad_();
  const Tensor most = mytorch::all_reduce(leaf, "max", group).sum();
  expect_error([&] { most.backward(); }, "has no gradient");
  group.barrier();  // and go on
}

// Each replay of a graph is a call.
void replay_graphs(const Group& group) {
  if (!here.is_cuda()) return;
  const int size = group.size();
  const Tensor x = mytorch::ones({1000}, kFloat32, here), y = mytorch::ones({8}, kFloat64, here);
  mytorch::DeviceGraph graph(here);
  graph.capture([&] {
    group.all_reduce(x);
    Work work = group.coalesced([&] {
      group.all_reduce(y, {}, true);
      group.all_reduce(x, {}, true);
    });
    work.wait();
  });
  const uint64_t before = group.sequence();
  for (int i = 0; i < 3; ++i) graph.replay();
  expect(group.sequence() == before + 3, "replays are not counted");
  expect_close(x, mytorch::full({1000}, std::pow(size, 6), kFloat32, here), "replays");
  expect_close(y, mytorch::full({8}, std::pow(size, 3), kFloat64, here), "replays");
}

}  // namespace

const std::vector<Body>& all() {
  static const std::vector<Body> bodies = [] {
    std::vector<Body> made = {{"ReduceEveryType", reduce_every_type},
                              {"MoveEveryType", move_every_type},
                              {"MoveUnevenCounts", move_uneven_counts},
                              {"TakeAnyStrides", take_any_strides},
                              {"NanWins", nan_wins},
                              {"Differentiate", differentiate},
                              {"DifferentiateTwice", differentiate_twice},
                              {"StartCallsTogether", start_calls_together},
                              {"ReplayGraphs", replay_graphs},
                              {"PassMessages", pass_messages},
                              {"DifferentiateMessages", differentiate_messages},
                              {"WorkLater", work_later},
                              {"ExchangeLater", exchange_later},
                              {"RepeatBits", repeat_bits},
                              {"FormGroups", form_groups},
                              {"RefuseBadCalls", refuse_bad_calls}};
    for (const Body& body : window_bodies()) made.push_back(body);
    for (const Body& body : context_bodies()) made.push_back({body.name, body.run, true});
    return made;
  }();
  return bodies;
}

}  // namespace mytorch::distributed::bodies
