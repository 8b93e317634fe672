#include "bench/harness/cases.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "mytorch/error.h"

namespace mytorch::bench {
namespace {

using conformance::OpArg;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kValue, "[bench] " + what);
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

bool is_optional(const OpArg& arg) {
  const size_t mark = arg.type.find('?');
  return mark != std::string::npos && (!arg.is_tensor_list() || mark + 1 == arg.type.size());
}

constexpr const char* kGpuSuite = "gpu";  // its cases are too large for a CPU

Form form_of(const std::string& text) {
  return text == "out" ? Form::kOut : text == "inplace" ? Form::kInplace : Form::kFunction;
}

// ---- shapes as text

constexpr const char* kLayouts[] = {"contiguous",    "transposed",     "sliced", "broadcast",
                                    "channels_last", "channels_first", "heads",  "padded"};

std::string layouts_text() {
  std::string text;
  for (const char* layout : kLayouts) text += (text.empty() ? "" : ", ") + std::string(layout);
  return text;
}

int64_t whole(const std::string& text, const std::string& where) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < 0) {
    refuse("--shapes: '" + text + "' in '" + where + "' is not a size");
  }
  return value;
}

double number(const std::string& text, const std::string& where) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) {
    refuse("--shapes: '" + text + "' in '" + where + "' is not a number");
  }
  return value;
}

Json parse_tensor(const std::string& text) {
  const std::vector<std::string> words = split(text, ':');
  if (words.empty() || words[0].empty()) refuse("--shapes: a shape is missing");
  if (words[0] == "-") return nullptr;
  Json spec = {{"shape", Json::array()}};
  if (words[0] != "[]") {
    for (const std::string& size : split(words[0], 'x')) {
      spec["shape"].push_back(whole(size, text));
    }
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (std::find(std::begin(kLayouts), std::end(kLayouts), word) != std::end(kLayouts)) {
      spec["layout"] = word;
    } else if (word.starts_with("low=") || word.starts_with("high=") ||
               word.starts_with("raised=")) {
      const size_t at = word.find('=');
      spec[word.substr(0, at)] = number(word.substr(at + 1), text);
    } else if (word.starts_with("of=")) {
      spec["of"] = word.substr(3);
    } else {
      try {
        dtype_from_name(word.c_str());
      } catch (const Error&) {
        refuse("--shapes: '" + word + "' in '" + text + "' is not a type, a layout (" +
               layouts_text() + "), low=N, high=N, raised=N or of=ARGUMENT");
      }
      spec["dtype"] = word;
    }
  }
  return spec;
}

std::string number_text(const Json& value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value.get<double>());
  return {text, end.ptr};
}

std::string tensor_text(const Json& spec) {
  if (spec.is_null()) return "-";
  std::string text;
  for (const Json& size : spec.at("shape")) {
    text += (text.empty() ? "" : "x") + std::to_string(size.get<int64_t>());
  }
  if (text.empty()) text = "[]";
  for (const char* key : {"dtype", "layout"}) {
    if (spec.contains(key)) text += ":" + spec.at(key).get<std::string>();
  }
  for (const char* key : {"low", "high", "raised"}) {
    if (spec.contains(key)) text += std::string(":") + key + "=" + number_text(spec.at(key));
  }
  if (spec.contains("of")) text += ":of=" + spec.at("of").get<std::string>();
  return text;
}

bool is_tensor_value(const OpArg& arg, const Json& value) {
  return (arg.is_tensor() && value.is_object()) || (arg.is_tensor_list() && value.is_array());
}

// ---- cases derived from a record

// Whether a sample is an ordinary call.
bool is_plain(const Json& sample) {
  for (const char* key : {"error", "may_fail", "gradcheck"}) {
    if (sample.contains(key)) return false;
  }
  return true;
}

// Adds required non-tensor arguments from the first ordinary sample.
void add_required(const OpRecord& record, Json& args) {
  for (const Json& sample : record.samples) {
    if (!is_plain(sample)) continue;
    for (const auto& [name, value] : sample.at("args").items()) {
      const OpArg* arg = record.arg(name);
      if (arg == nullptr || !arg->required || args.contains(name)) continue;
      if (!arg->is_tensor() && !arg->is_tensor_list()) args[name] = value;
    }
    return;
  }
}

std::vector<Json> suggested(const OpRecord& record) {
  std::vector<Json> found;
  const auto all_of_shape = [&](const Json& shape) {
    Json args = Json::object();
    for (const OpArg& arg : record.args) {
      if (arg.is_tensor() && !is_optional(arg)) args[arg.name] = {{"shape", shape}};
    }
    return args;
  };
  if (record.meaning == "custom") {  // its samples are meant for checks
    for (const int64_t n : {64, 1024}) found.push_back(all_of_shape(Json::array({n, n})));
  } else if (record.meaning == "pointwise") {
    for (const int64_t n : {8, 1 << 16, 1 << 24}) found.push_back(all_of_shape(Json::array({n})));
  } else if (record.meaning == "reduce") {
    const OpArg* dim = record.arg("dim");
    const Json plain = all_of_shape(Json::array({4096, 4096}));
    if (dim == nullptr || is_optional(*dim) || !dim->required) found.push_back(plain);
    for (const int64_t d : {1, 0}) {
      if (dim == nullptr) break;
      Json args = plain;
      args["dim"] = dim->type.starts_with("int[") ? Json::array({d}) : Json(d);
      found.push_back(args);
    }
    if (dim != nullptr && is_optional(*dim)) found.front()["dim"] = nullptr;
  } else {
    for (const Json& sample : record.samples) {
      if (!is_plain(sample) || found.size() == 3) continue;
      bool shapes_only = true;  // samples with explicit values are not for timing
      for (const auto& [name, value] : sample.at("args").items()) {
        shapes_only &= !value.is_object() || value.contains("shape");
      }
      if (shapes_only) found.push_back(sample.at("args"));
    }
  }
  return found;
}

std::string default_name(const Case& c) {
  std::string name = c.record->name + "/" + shapes_text(*c.record, c.args);
  for (const OpArg& arg : c.record->args) {
    const auto value = c.args.find(arg.name);
    if (value == c.args.end() || is_tensor_value(arg, *value) || arg.is_tensor_list()) continue;
    if (arg.is_tensor() && value->is_null()) continue;
    name += "/" + arg.name + ":" + (value->is_string() ? value->get<std::string>() : value->dump());
  }
  if (c.form == Form::kOut) name += "/out";
  if (c.form == Form::kInplace) name += "/inplace";
  return name;
}

std::string quoted(const std::string& text) {
  const bool plain = text.find_first_of(" '\"{}[]*?$&;()<>|\\`!#~") == std::string::npos;
  return plain ? text : "'" + text + "'";
}

}  // namespace

std::vector<Case> suite_cases(const std::vector<OpRecord>& catalog, const std::string& folder,
                              const std::string& suite) {
  const std::string path = folder + "/suites.json";
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kIo, "[bench] cannot read " + path);
  std::vector<Case> cases;
  std::set<std::string> suites;
  try {
    const Json all = Json::parse(file);
    if (!all.is_array() || all.empty()) {
      throw Error(ErrorCode::kIo, "[bench] " + path + " is not a list of cases");
    }
    for (const Json& json : all) {
      Case c;
      c.suite = json.at("suite");
      suites.insert(c.suite);
      if (suite.empty() ? c.suite == kGpuSuite : c.suite != suite) continue;
      c.name = json.at("name");
      c.program = json.value("program", "");
      c.form = form_of(json.value("form", ""));
      c.args = json.value("args", Json::object());
      c.dtype = json.value("dtype", c.dtype);
      if (c.program.empty()) {
        const std::string op = json.at("op");
        const auto found = std::find_if(catalog.begin(), catalog.end(),
                                        [&](const OpRecord& record) { return record.name == op; });
        if (found == catalog.end()) refuse(path + ": unknown operator '" + op + "'");
        c.record = &*found;
      }
      cases.push_back(std::move(c));
    }
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kIo, "[bench] " + path + ": " + error.what());
  }
  if (cases.empty()) {
    refuse("unknown suite '" + suite + "'; the suites are " + joined(suites));
  }
  return cases;
}

Named find_record(const std::vector<OpRecord>& catalog, const std::string& name) {
  std::set<std::string> overloads;
  const auto find = [&](const std::string& wanted) -> const OpRecord* {
    const OpRecord* only = nullptr;
    for (const OpRecord& op : catalog) {
      if (op.name == wanted) return &op;
      if (op.derived || op.name.substr(0, op.name.find('.')) != wanted) continue;
      only = &op;
      overloads.insert(op.name);
    }
    return overloads.size() == 1 ? only : nullptr;
  };
  if (const OpRecord* op = find(name)) return {op, Form::kFunction};
  if (overloads.size() > 1) refuse("'" + name + "' is ambiguous: give one of " + joined(overloads));
  const size_t dot = std::min(name.find('.'), name.size());
  if (dot > 1 && name[dot - 1] == '_') {
    if (const OpRecord* op = find(name.substr(0, dot - 1) + name.substr(dot))) {
      if (!op->inplace) refuse(op->name + " has no in-place form");
      return {op, Form::kInplace};
    }
  }
  if (overloads.size() > 1) refuse("'" + name + "' is ambiguous: give one of " + joined(overloads));
  refuse("unknown operator '" + name + "': `mytorch ops` lists them");
}

Json parse_shapes(const OpRecord& record, const std::string& shapes, const Json& given) {
  std::vector<const OpArg*> tensors;
  std::set<std::string> names;
  for (const OpArg& arg : record.args) {
    if ((!arg.is_tensor() && !arg.is_tensor_list()) || given.contains(arg.name)) continue;
    tensors.push_back(&arg);
    names.insert(arg.name);
  }
  const std::vector<std::string> texts = split(shapes, ',');
  if (texts.size() > tensors.size()) {
    refuse("--shapes has " + std::to_string(texts.size()) + " shapes, but " + record.name +
           " takes " + std::to_string(tensors.size()) + " tensors" +
           (tensors.empty() ? "" : ": " + joined(names)));
  }
  Json args = Json::object();
  for (size_t i = 0; i < texts.size(); ++i) {
    const OpArg& arg = *tensors[i];
    if (arg.is_tensor_list()) {
      args[arg.name] = Json::array();
      for (const std::string& one : split(texts[i], '+')) {
        args[arg.name].push_back(parse_tensor(one));
      }
    } else {
      args[arg.name] = parse_tensor(texts[i]);
      if (args[arg.name].is_null() && !is_optional(arg)) {
        refuse("--shapes: " + record.name + " needs its argument '" + arg.name + "'");
      }
    }
  }
  for (const auto& [name, spec] : args.items()) {
    if (!spec.is_object() || !spec.contains("of")) continue;
    const std::string of = spec.at("of");
    if (of == name || !args.contains(of) || !args.at(of).is_object() ||
        args.at(of).contains("of")) {
      refuse("--shapes: '" + name + "' is a view of '" + of +
             "', which is not a tensor with memory of its own");
    }
  }
  return args;
}

std::string shapes_text(const OpRecord& record, const Json& args) {
  std::string text, absent;
  bool first = true;
  for (const OpArg& arg : record.args) {
    if (!arg.is_tensor() && !arg.is_tensor_list()) continue;
    const auto value = args.find(arg.name);
    // Numbers are among the other arguments.
    if (value != args.end() && !value->is_null() && !is_tensor_value(arg, *value)) continue;
    std::string one = "-";
    if (value != args.end() && value->is_array()) {
      one.clear();
      for (const Json& item : *value) one += (one.empty() ? "" : "+") + tensor_text(item);
    } else if (value != args.end()) {
      one = tensor_text(*value);
    }
    // Omits absent tensors at the end.
    absent += first ? "" : ",";
    first = false;
    if (one == "-") {
      absent += one;
    } else {
      text += absent + one;
      absent.clear();
    }
  }
  return text;
}

std::vector<Case> cases_of(const OpRecord& record, Form form, const Json& given,
                           const std::vector<Case>& of_suites, const std::string& dtype) {
  bool has_tensors = false;
  for (const auto& [name, value] : given.items()) {
    const OpArg* arg = record.arg(name);
    if (arg == nullptr) {
      std::set<std::string> names;
      for (const OpArg& known : record.args) names.insert(known.name);
      refuse(record.name + " has no argument '" + name + "'; it has " + joined(names));
    }
    has_tensors |= is_tensor_value(*arg, value);
  }
  std::vector<Case> cases;
  const auto add = [&](Json args, const std::string& name) {
    for (const auto& [key, value] : given.items()) args[key] = value;
    add_required(record, args);
    Case c{"", name, &record, "", form, std::move(args), dtype.empty() ? "float32" : dtype};
    if (c.name.empty()) c.name = default_name(c);
    cases.push_back(std::move(c));
  };
  if (has_tensors) {
    add(Json::object(), "");
    return cases;
  }
  for (const Case& c : of_suites) {
    if (c.record == &record && c.form == form && given.empty()) add(c.args, c.name);
  }
  if (!cases.empty()) return cases;
  for (const Json& args : suggested(record)) add(args, "");
  if (cases.empty()) refuse(record.name + " needs tensors: give --shapes");
  return cases;
}

std::string reproducer(const Case& c, int threads, const std::string& backend) {
  std::string line = "mytorch bench ";
  if (c.record == nullptr) {
    line += "--suite " + c.suite + " --case " + c.name;
  } else {
    std::string name = c.record->name;
    if (c.form == Form::kInplace) name.insert(std::min(name.find('.'), name.size()), 1, '_');
    line += name;
    if (c.form == Form::kOut) line += " --form out";
    const std::string shapes = shapes_text(*c.record, c.args);
    if (!shapes.empty()) line += " --shapes " + quoted(shapes);
    for (const OpArg& arg : c.record->args) {
      const auto value = c.args.find(arg.name);
      if (value == c.args.end() || is_tensor_value(arg, *value)) continue;
      if (value->is_null() && (arg.is_tensor() || !arg.required)) continue;
      const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
      line += " --set " + quoted(arg.name + "=" + text);
    }
    line += " --dtype " + c.dtype;
  }
  if (!c.device.is_cpu()) line += " --device " + c.device.str();
  line += " --threads " + std::to_string(threads);
  return backend.empty() ? line : line + " --backend " + backend;
}

}  // namespace mytorch::bench
