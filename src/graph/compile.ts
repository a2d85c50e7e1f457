import { type InputTypes, type PrepareOptions, prepare, type TracedFunction } from './prepare.ts'
import { StepProgram } from './program.ts'
import { defaultRuntime, type Runtime } from './runtime.ts'

/**
 * Traces `fn` once and returns the program that replays it.
 *
 * `fn` gets tensors by name and returns tensors by name; what it reads of the outside at tracing time (sizes, flags) is fixed, what
 * changes per run is an input or a step scalar.
 * errors: those of the ops it calls, `gpu.compile`, `gpu.limit`, `graph.misuse`.
 */
export async function compile(
  fn: TracedFunction,
  inputs: InputTypes,
  options: PrepareOptions & { runtime?: Runtime } = {},
): Promise<StepProgram> {
  const runtime = options.runtime ?? (await defaultRuntime())
  const prepared = prepare(runtime, fn, inputs, options)
  await prepared.trace.exchange?.ready
  return StepProgram.create(runtime, prepared)
}
