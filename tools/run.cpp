// `mytorch run`.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/program.h"
#include "nn/serialize/npy.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct RunArguments {
  std::string file;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::string save;
  int repeat = 1;
};

std::string described(const Program::Port& port) {
  return absl::StrCat(port.name, ": ", dtype_name(port.dtype), " of shape ", shape_str(port.sizes),
                      " on ", port.device.str());
}

// Splits "NAME=FILE", where NAME is that of a port. A program of one may leave it out.
std::map<size_t, std::string> files_of(const std::vector<std::string>& given, const char* option,
                                       const std::vector<Program::Port>& ports) {
  std::map<size_t, std::string> files;
  for (const std::string& each : given) {
    const size_t equals = each.find('=');
    const std::string name = equals == std::string::npos ? "" : each.substr(0, equals);
    size_t at = 0;
    while (at < ports.size() && ports[at].name != name) ++at;
    if (at == ports.size()) {
      std::string known;
      for (const Program::Port& port : ports) absl::StrAppend(&known, "\n  ", described(port));
      fail(ErrorCode::kValue, "[run] ", option, " takes NAME=FILE, not '", each,
           "'; the program has", known.empty() ? " none" : known);
    }
    if (!files.emplace(at, each.substr(equals + 1)).second) {
      fail(ErrorCode::kValue, "[run] '", name, "' is given twice");
    }
  }
  return files;
}

int run(const RunArguments& arguments) {
  Program program = load(arguments.file);
  const auto in = files_of(arguments.inputs, "--input", program.inputs());
  const auto out = files_of(arguments.outputs, "--output", program.outputs());
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    const Program::Port& port = program.inputs()[i];
    const auto found = in.find(i);
    if (found == in.end()) {
      fail(ErrorCode::kValue, "[run] give --input ", port.name, "=FILE.npy, ", described(port));
    }
    inputs.push_back(nn::load_npy(found->second).to(port.device));
  }
  std::vector<Tensor> results;
  for (int i = 0; i < arguments.repeat; ++i) results = program.run(inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto found = out.find(i);
    if (found != out.end()) {
      if (!results[i].defined()) {
        fail(ErrorCode::kValue, "[run] '", program.outputs()[i].name, "' is undefined");
      }
      nn::save_npy(found->second, results[i]);
    } else {
      std::cout << described(program.outputs()[i]) << "\n";
      if (results[i].defined()) std::cout << results[i] << "\n";
    }
  }
  if (!arguments.save.empty()) program.save(arguments.save);
  return 0;
}

}  // namespace

Run add_run(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  app.add_option("file", arguments->file, "the program, as Compiled::save() wrote it")->required();
  app.add_option("--input", arguments->inputs, "NAME=FILE.npy: the array of an input; repeatable");
  app.add_option("--output", arguments->outputs,
                 "NAME=FILE.npy: where to write a result; the others are printed");
  app.add_option("--repeat", arguments->repeat, "run it so many times, with the same inputs")
      ->check(CLI::PositiveNumber);
  app.add_option("--save", arguments->save, "write the program with its state after the runs");
  return [arguments] { return run(*arguments); };
}

}  // namespace mytorch::tools
