#include "backends/cpu-openmp/fused/machine_code.h"

#include "backends/cpu-openmp/simd/instruction_set.h"

#if MYTORCH_XBYAK && defined(__x86_64__)

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "xbyak/xbyak.h"

namespace mytorch::cpu {
namespace {

using Xbyak::Opmask;
using Xbyak::Zmm;

constexpr int kLanes = 16;
constexpr int kVectors = 32;
constexpr int kMostPinned = 12;  // numbers that stay in registers
constexpr int kMostSpilled = 60;
constexpr int kFirstMask = 2, kLastMask = 6;  // k1 tells the last elements, k7 is for one operation
constexpr int kPredicates[] = {0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d};  // of vcmpps, from kEq on

int32_t bits_of(float value) { return std::bit_cast<int32_t>(value); }

// A number of the code, or one that is given to the loop.
struct CodeNumber {
  bool given;
  int32_t of;  // its bits, or its place
  bool operator<(const CodeNumber& other) const {
    return std::pair(given, of) < std::pair(other.given, other.of);
  }
};

struct TooLarge {};

// AVX-512 code of a loop with the signature of InnerLoop. The stack has room for values that find
// no register.
class Emitter : public Xbyak::CodeGenerator {
 public:
  explicit Emitter(const Expression& expression)
      : CodeGenerator(8192 + 512 * expression.operations.size(), Xbyak::DontSetProtectRWE),
        operations_(expression.operations),
        results_(expression.results) {
    note_uses();
    emit_loop();
    setProtectModeRE();
    loop_ = getCode<InnerLoop>();
  }
  const InnerLoop& loop() const { return loop_; }

 private:
  static constexpr int kNone = -1;
  // Where a value is.
  struct Value {
    int reg = kNone;   // of vectors or masks
    int slot = kNone;  // on the stack, where it stays
    size_t next = 0;   // the next of its uses
  };

  const Operation& at(int32_t value) const { return operations_[static_cast<size_t>(value)]; }
  bool is_number(int32_t value) const {
    return at(value).code == Operation::kNumber || at(value).code == Operation::kParameter;
  }
  // Returns the number of a leaf.
  CodeNumber code_number(int32_t value) const {
    const Operation& leaf = at(value);
    return leaf.code == Operation::kParameter ? CodeNumber{true, leaf.parameter}
                                              : CodeNumber{false, bits_of(leaf.number)};
  }
  Value& value(int32_t at) { return values_[static_cast<size_t>(at)]; }
  const std::vector<size_t>& uses(int32_t at) const { return uses_[static_cast<size_t>(at)]; }

  // Notes where each value is used; results are after all operations.
  void note_uses() {
    const size_t count = operations_.size();
    uses_.resize(count);
    for (size_t k = 0; k < results_.size(); ++k) {
      uses_[static_cast<size_t>(results_[k])].push_back(count + k);
    }
    for (size_t i = count; i-- > 0;) {
      if (uses_[i].empty()) continue;
      for (const int32_t operand : {operations_[i].a, operations_[i].b, operations_[i].c}) {
        if (operand < 0) continue;
        auto& found = uses_[static_cast<size_t>(operand)];
        found.push_back(i);
      }
    }
    for (auto& each : uses_) std::sort(each.begin(), each.end());
    for (size_t i = 0; i < count; ++i) {
      const auto leaf = static_cast<int32_t>(i);
      if (is_number(leaf) && !uses_[i].empty()) pin(code_number(leaf));
    }
  }
  void pin(const CodeNumber& number) {
    if (pinned_.size() == kMostPinned || pinned_.contains(number)) return;
    const int reg = kVectors - 1 - static_cast<int>(pinned_.size());
    pinned_[number] = reg;
  }

  void emit_loop() {
    Xbyak::Label main, tail, end;
    push(rbp);
    mov(rbp, rsp);
    push(rbx);
    sub(rsp, kMostSpilled * 64);
    and_(rsp, -64);
    const size_t inputs = num_inputs();
    for (size_t k = 0; k < std::min<size_t>(inputs, 3); ++k) mov(kInputs[k], ptr[rdi + 8 * k]);
    mov(r11, ptr[rsi]);
    mov(rbx, ptr[rdx + static_cast<int>(offsetof(Scalars, self))]);
    for (const auto& [number, reg] : pinned_) vbroadcastss(Zmm(reg), place(ptr, number));
    xor_(eax, eax);
    sub(rcx, kLanes);
    jl(tail, T_NEAR);
    align(32);
    L(main);
    emit_body(false);
    add(rax, kLanes);
    sub(rcx, kLanes);
    jge(main, T_NEAR);
    L(tail);
    add(rcx, kLanes);
    jz(end, T_NEAR);
    mov(edx, -1);
    bzhi(edx, edx, ecx);
    kmovw(k1, edx);
    emit_body(true);
    L(end);
    vzeroupper();
    mov(rbx, ptr[rbp - 8]);
    mov(rsp, rbp);
    pop(rbp);
    mov(eax, 1);
    ret();
    align(4);
    for (auto& [bits, label] : numbers_) {
      L(label);
      dd(static_cast<uint32_t>(bits));
    }
  }
  size_t num_inputs() const {
    int32_t most = -1;
    for (const Operation& each : operations_) most = std::max(most, each.input);
    return static_cast<size_t>(most) + 1;
  }
  Xbyak::Label& number(int32_t bits) { return numbers_[bits]; }
  // Returns where a number is in memory; `frame` is ptr, or ptr_b to repeat it.
  Xbyak::Address place(const Xbyak::AddressFrame& frame, const CodeNumber& of) {
    return of.given ? frame[rbx + 4 * of.of] : frame[rip + number(of.of)];
  }

  void emit_body(bool tail) {
    tail_ = tail;
    values_.assign(operations_.size(), {});
    owner_.assign(static_cast<size_t>(kVectors) - pinned_.size(), kNone);
    masks_.assign(kLastMask + 1, kNone);
    num_slots_ = 0;
    for (now_ = 0; now_ < operations_.size(); ++now_) {
      const auto i = static_cast<int32_t>(now_);
      if (uses(i).empty() || is_number(i)) continue;
      emit(i);
      release_temporaries();
    }
    for (size_t k = 0; k < results_.size(); ++k, ++now_) {
      store(results_[k], static_cast<int>(k));
      release(results_[k]);
      release_temporaries();
    }
  }

  // ---- registers

  // Returns a register for a value, or for the time of one operation (kNone).
  int take(int32_t owner) {
    int found = kNone;
    size_t farthest = 0;
    for (size_t r = 0; r < owner_.size(); ++r) {
      if (owner_[r] == kNone) {
        found = static_cast<int>(r);
        break;
      }
      if (owner_[r] < 0 || std::find(locked_.begin(), locked_.end(), owner_[r]) != locked_.end()) {
        continue;
      }
      const Value& held = value(owner_[r]);
      const size_t next = uses(owner_[r])[held.next];
      if (next >= farthest) {
        farthest = next;
        found = static_cast<int>(r);
      }
    }
    if (found == kNone) throw TooLarge{};
    int32_t& now = owner_[static_cast<size_t>(found)];
    if (now >= 0) {
      Value& out = value(now);
      if (out.slot == kNone) {
        if (num_slots_ == kMostSpilled) throw TooLarge{};
        out.slot = num_slots_++;
        vmovaps(ptr[rsp + 64 * out.slot], Zmm(found));
      }
      out.reg = kNone;
    }
    now = owner == kNone ? kTemporary : owner;
    return found;
  }
  Zmm new_reg(int32_t owner) {
    const int reg = take(owner);
    if (owner != kNone) value(owner).reg = reg;
    return Zmm(reg);
  }
  Opmask new_mask(int32_t owner) {
    for (int k = kFirstMask; k <= kLastMask; ++k) {
      if (masks_[static_cast<size_t>(k)] != kNone) continue;
      masks_[static_cast<size_t>(k)] = owner;
      value(owner).reg = k;
      return Opmask(k);
    }
    throw TooLarge{};
  }
  void release_temporaries() {
    for (int32_t& owner : owner_) owner = owner == kTemporary ? kNone : owner;
    locked_.clear();
  }
  // Notes that the operation at hand has used a value.
  void release(int32_t used) {
    if (used < 0 || is_number(used)) return;
    Value& found = value(used);
    const auto& all = uses(used);
    while (found.next < all.size() && all[found.next] <= now_) ++found.next;
    if (found.next < all.size() || found.reg == kNone) return;
    (is_mask(at(used).code) ? masks_ : owner_)[static_cast<size_t>(found.reg)] = kNone;
    found.reg = kNone;
  }
  void release_operands(const Operation& op) {
    release(op.a);
    if (op.b != op.a) release(op.b);
    if (op.c != op.a && op.c != op.b) release(op.c);
  }

  Zmm reg(int32_t of) {
    if (is_number(of)) {
      const CodeNumber number = code_number(of);
      if (const auto found = pinned_.find(number); found != pinned_.end()) {
        return Zmm(found->second);
      }
      const Zmm made(take(kNone));
      vbroadcastss(made, place(ptr, number));
      return made;
    }
    locked_.push_back(of);
    Value& found = value(of);
    if (found.reg == kNone) {
      found.reg = take(of);
      vmovaps(Zmm(found.reg), ptr[rsp + 64 * found.slot]);
    }
    return Zmm(found.reg);
  }
  // Calls f with a register or a place in memory that holds a value.
  template <class F>
  void with(int32_t of, F&& f) {
    if (is_number(of) && !pinned_.contains(code_number(of))) {
      f(place(ptr_b, code_number(of)));
    } else if (!is_number(of) && value(of).reg == kNone) {
      f(ptr[rsp + 64 * value(of).slot]);
    } else {
      f(reg(of));
    }
  }
  Opmask mask(int32_t of) { return Opmask(value(of).reg); }

  // ---- operations

  Xbyak::Reg64 pointer(bool output, int index) {
    if (output && index == 0) return r11;
    if (!output && index < 3) return kInputs[index];
    mov(rdx, ptr[(output ? rsi : rdi) + 8 * index]);
    return rdx;
  }

  // The result may take the register of an operand, unless the operation is several instructions.
  template <class F>
  void binary(int32_t i, F&& f) {
    const Operation& op = at(i);
    const Zmm a = reg(op.a);
    with(op.b, [&](const Xbyak::Operand& b) {
      release_operands(op);
      f(new_reg(i), a, b);
    });
  }
  template <class F>
  void unary(int32_t i, F&& f) {
    const Operation& op = at(i);
    with(op.a, [&](const Xbyak::Operand& a) {
      release_operands(op);
      f(new_reg(i), a);
    });
  }
  void largest(int32_t i, bool maximum) {
    const Operation& op = at(i);
    const Zmm a = reg(op.a);
    with(op.b, [&](const Xbyak::Operand& b) {
      const Zmm to = new_reg(i);
      vcmpps(k7, a, a, 3);  // NaN; of a NaN in b, that is the result
      if (maximum) {
        vmaxps(to, a, b);
      } else {
        vminps(to, a, b);
      }
      vmovaps(to | k7, a);
    });
    release_operands(op);
  }
  void bits(int32_t i, int32_t pattern, bool flip) {
    const Operation& op = at(i);
    const Zmm a = reg(op.a);
    release_operands(op);
    const Zmm to = new_reg(i);
    if (flip) {
      vpxord(to, a, ptr_b[rip + number(pattern)]);
    } else {
      vpandd(to, a, ptr_b[rip + number(pattern)]);
    }
  }
  void round(int32_t i, uint8_t mode) {
    unary(i, [&](const Zmm& to, const Xbyak::Operand& a) { vrndscaleps(to, a, mode); });
  }
  void sign(int32_t i) {
    const Zmm a = reg(at(i).a);
    const Zmm zero(take(kNone)), to = new_reg(i);
    vpxord(zero, zero, zero);
    vcmpps(k7, a, zero, 0x1e);
    vbroadcastss(to | k7 | T_z, ptr[rip + number(bits_of(1))]);
    vcmpps(k7, a, zero, 0x11);
    vsubps(to | k7, to, ptr_b[rip + number(bits_of(1))]);
    release_operands(at(i));
  }
  void fma(int32_t i) {
    const Operation& op = at(i);
    const auto code = op.code;
    // a * b + c over the register of c.
    const auto over_c = [&](const Zmm& to, const Zmm& a, const Xbyak::Operand& b) {
      if (code == Operation::kMulAdd) {
        vfmadd231ps(to, a, b);
      } else if (code == Operation::kMulSub) {
        vfmsub231ps(to, a, b);
      } else {
        vfnmadd231ps(to, a, b);
      }
    };
    // to * b + c over the register of a.
    const auto over_a = [&](const Zmm& to, const Zmm& b, const Xbyak::Operand& c) {
      if (code == Operation::kMulAdd) {
        vfmadd213ps(to, b, c);
      } else if (code == Operation::kMulSub) {
        vfmsub213ps(to, b, c);
      } else {
        vfnmadd213ps(to, b, c);
      }
    };
    if (!is_number(op.c) && op.c != op.a && op.c != op.b && dies(op.c)) {
      const Zmm a = reg(op.a), c = reg(op.c);
      with(op.b, [&](const Xbyak::Operand& b) { over_c(c, a, b); });
      const int taken = c.getIdx();
      release_operands(op);
      owner_[static_cast<size_t>(taken)] = i;
      value(i).reg = taken;
      return;
    }
    int32_t first = op.a, second = op.b;
    if (is_number(first) || (!dies(first) && !is_number(second) && dies(second))) {
      std::swap(first, second);
    }
    if (!is_number(first) && first != second && first != op.c && dies(first)) {
      const Zmm to = reg(first), b = reg(second);
      with(op.c, [&](const Xbyak::Operand& c) { over_a(to, b, c); });
      const int taken = to.getIdx();
      release_operands(op);
      owner_[static_cast<size_t>(taken)] = i;
      value(i).reg = taken;
      return;
    }
    const Zmm a = reg(first), b = reg(second);
    with(op.c, [&](const Xbyak::Operand& c) {
      const Zmm to = new_reg(i);
      vmovaps(to, a);
      over_a(to, b, c);
    });
    release_operands(op);
  }
  bool dies(int32_t of) const { return uses(of).back() == now_; }

  void load(int32_t i) {
    const Operation& op = at(i);
    const Xbyak::Reg64 from = pointer(false, op.input);
    const auto kept = [&](const Zmm& to) { return tail_ ? to | k1 | T_z : to; };
    switch (op.code) {
      case Operation::kInput:
        vmovups(kept(new_reg(i)), ptr[from + rax * 4]);
        break;
      case Operation::kBfloat16: {
        const Zmm to = new_reg(i);
        vpmovzxwd(kept(to), ptr[from + rax * 2]);
        vpslld(to, to, 16);
        break;
      }
      case Operation::kFloat16:
        vcvtph2ps(kept(new_reg(i)), ptr[from + rax * 2]);
        break;
      default: {
        const Zmm bytes(take(kNone));
        vpmovzxbd(kept(bytes), ptr[from + rax]);
        vptestmd(new_mask(i), bytes, bytes);
      }
    }
  }
  void store(int32_t result, int output) {
    if (is_mask(at(result).code)) {
      const Zmm bytes(take(kNone));
      vpbroadcastd(bytes | mask(result) | T_z, ptr[rip + number(1)]);
      const Xbyak::Reg64 to = pointer(true, output);
      const Xbyak::Address address = ptr[to + rax];
      vpmovdb(tail_ ? address | k1 : address, bytes);
      return;
    }
    const Zmm from = reg(result);
    const Xbyak::Reg64 to = pointer(true, output);
    const Xbyak::Address address = ptr[to + rax * 4];
    vmovups(tail_ ? address | k1 : address, from);
  }

  void emit(int32_t i) {
    using Operand = Xbyak::Operand;
    const Operation& op = at(i);
    switch (op.code) {
      case Operation::kInput:
      case Operation::kBfloat16:
      case Operation::kFloat16:
      case Operation::kBools:
        return load(i);
      case Operation::kNumber:
      case Operation::kParameter:
        return;
      case Operation::kAdd:
        return binary(i, [&](const Zmm& to, const Zmm& a, const Operand& b) { vaddps(to, a, b); });
      case Operation::kSub:
        return binary(i, [&](const Zmm& to, const Zmm& a, const Operand& b) { vsubps(to, a, b); });
      case Operation::kMul:
        return binary(i, [&](const Zmm& to, const Zmm& a, const Operand& b) { vmulps(to, a, b); });
      case Operation::kDiv:
        return binary(i, [&](const Zmm& to, const Zmm& a, const Operand& b) { vdivps(to, a, b); });
      case Operation::kMulAdd:
      case Operation::kMulSub:
      case Operation::kNegMulAdd:
        return fma(i);
      case Operation::kMaximum:
        return largest(i, true);
      case Operation::kMinimum:
        return largest(i, false);
      case Operation::kNeg:
        return bits(i, INT32_MIN, true);
      case Operation::kAbs:
        return bits(i, INT32_MAX, false);
      case Operation::kSign:
        return sign(i);
      case Operation::kSqrt:
        return unary(i, [&](const Zmm& to, const Operand& a) { vsqrtps(to, a); });
      case Operation::kRsqrt: {
        unary(i, [&](const Zmm& to, const Operand& a) { vsqrtps(to, a); });
        locked_.push_back(i);
        const Zmm to(value(i).reg), one(take(kNone));
        vbroadcastss(one, ptr[rip + number(bits_of(1))]);
        vdivps(to, one, to);
        return;
      }
      case Operation::kFloor:
        return round(i, 0x09);
      case Operation::kCeil:
        return round(i, 0x0a);
      case Operation::kTrunc:
        return round(i, 0x0b);
      case Operation::kRound:
        return round(i, 0x08);
      case Operation::kWhere: {
        const Opmask chosen = mask(op.a);
        const Zmm no = reg(op.c);
        with(op.b, [&](const Operand& yes) {
          release_operands(op);
          vblendmps(new_reg(i) | chosen, no, yes);
        });
        return;
      }
      case Operation::kFromMask: {
        const Opmask chosen = mask(op.a);
        release_operands(op);
        vbroadcastss(new_reg(i) | chosen | T_z, ptr[rip + number(bits_of(1))]);
        return;
      }
      case Operation::kIsnan: {
        const Zmm a = reg(op.a);
        release_operands(op);
        vcmpps(new_mask(i), a, a, 3);
        return;
      }
      case Operation::kAnd:
      case Operation::kOr:
      case Operation::kXor: {
        const Opmask a = mask(op.a), b = mask(op.b);
        release_operands(op);
        const Opmask to = new_mask(i);
        if (op.code == Operation::kAnd) {
          kandw(to, a, b);
        } else if (op.code == Operation::kOr) {
          korw(to, a, b);
        } else {
          kxorw(to, a, b);
        }
        return;
      }
      case Operation::kNot: {
        const Opmask a = mask(op.a);
        release_operands(op);
        knotw(new_mask(i), a);
        return;
      }
      default: {
        const Zmm a = reg(op.a);
        with(op.b, [&](const Operand& b) {
          release_operands(op);
          vcmpps(new_mask(i), a, b, static_cast<uint8_t>(kPredicates[op.code - Operation::kEq]));
        });
      }
    }
  }

  static constexpr int kTemporary = -2;
  const Xbyak::Reg64 kInputs[3] = {r8, r9, r10};
  const std::vector<Operation>& operations_;
  const std::vector<int32_t>& results_;
  InnerLoop loop_ = nullptr;
  std::vector<std::vector<size_t>> uses_;
  std::map<CodeNumber, int> pinned_;
  std::map<int32_t, Xbyak::Label> numbers_;
  // Of the body that is being emitted.
  bool tail_ = false;
  size_t now_ = 0;
  std::vector<Value> values_;
  std::vector<int32_t> owner_, masks_;  // the values in registers
  std::vector<int32_t> locked_;         // operands of the operation at hand
  int num_slots_ = 0;
};

}  // namespace

bool makes_machine_code() {
  static const bool makes = [] {
    const char* const wanted = std::getenv("MYTORCH_MACHINE_CODE");
    return (wanted == nullptr || std::string_view(wanted) != "off") &&
           std::string_view(simd::instruction_set()).starts_with("AVX3");
  }();
  return makes;
}

namespace {

// Returns a text that is equal for equal expressions.
std::string text_of_expression(const Expression& expression) {
  std::string text;
  const auto add = [&](int32_t number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  for (const Operation& each : expression.operations) {
    for (const int32_t field : {int32_t{each.code}, each.a, each.b, each.c, each.input,
                                bits_of(each.number), each.parameter}) {
      add(field);
    }
  }
  text += '\n';
  for (const int32_t result : expression.results) add(result);
  return text;
}

// The loops that exist.
class CodeLoops {
 public:
  static CodeLoops& instance() {
    static CodeLoops* const all = new CodeLoops;  // kernels may outlive main
    return *all;
  }
  std::shared_ptr<const InnerLoop> find(const Expression& expression) {
    std::string text = text_of_expression(expression);
    std::shared_ptr<const Made> made;  // is never destroyed under the lock, which it takes
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = known_.find(text); at != known_.end()) {
      if (std::shared_ptr<const InnerLoop> found = at->second.lock()) return found;
    }
    made = std::make_shared<const Made>(expression, text);
    std::shared_ptr<const InnerLoop> loop(made, &made->emitter.loop());
    known_.insert_or_assign(std::move(text), loop);
    return loop;
  }
  size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return known_.size();
  }

 private:
  struct Made {
    Made(const Expression& expression, std::string of) : emitter(expression), text(std::move(of)) {}
    ~Made() { instance().forget(text); }
    Emitter emitter;
    std::string text;
  };
  // There may be another loop of that text by now.
  void forget(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = known_.find(text); at != known_.end() && at->second.expired()) {
      known_.erase(at);
    }
  }

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const InnerLoop>> known_;
};

}  // namespace

std::shared_ptr<const InnerLoop> machine_code(const Expression& expression) {
  try {
    return CodeLoops::instance().find(expression);
  } catch (const TooLarge&) {
    return nullptr;
  } catch (const Xbyak::Error&) {  // such as a system that forbids code made at run time
    return nullptr;
  }
}

size_t num_loops() { return CodeLoops::instance().count(); }

}  // namespace mytorch::cpu

#else

namespace mytorch::cpu {

bool makes_machine_code() { return false; }
std::shared_ptr<const InnerLoop> machine_code(const Expression& /*expression*/) { return nullptr; }
size_t num_loops() { return 0; }

}  // namespace mytorch::cpu

#endif
