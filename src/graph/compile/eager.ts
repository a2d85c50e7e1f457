import { download } from '../../gpu/readback.ts'
import { unpackHalves } from '../../kernels/half.ts'
import { TabringError } from '../../util/errors.ts'
import { bytesOf, countElements, type TensorType } from '../../util/shape.ts'
import type { Look, OnNode } from '../inside/probe.ts'
import { type AnyRuntime, CpuRuntime, type Runtime } from '../memory/runtime.ts'
import {
  type InputTypes,
  type Prepared,
  type PrepareOptions,
  prepare,
  type TracedFunction,
} from '../plan/prepare.ts'
import { type HostData, hostArrays, type RunInputs, type RunOutputs } from '../plan/step-program.ts'
import { CpuProgram } from '../run/cpu-program.ts'
import { ProgramBuffers } from '../run/program-buffers.ts'
import { whenSettled } from '../trace/exchange.ts'
import { randomScalarNames } from '../trace/random.ts'
import { keepBuffers } from './kept-buffers.ts'
import { passChecks } from './output-checks.ts'

export interface EagerOptions extends PrepareOptions {
  /** Whether the run may change anything: parameters, modules' buffers, the count of steps; true unless told. Without, random masks need `randomStep` given. */
  readonly isUpdating?: boolean
  readonly onKernel?: (label: string) => void
  /** Called after the kernels of each node of forward and backward. */
  readonly onNode?: OnNode
}

/**
 * Runs a function the slow way: traced anew each time, each kernel in a submit of its own, on buffers made for this run, one for
 * each intermediate: no memory plan.
 *
 * The kernels and fused groups are those of the recorded program, so on one adapter the results are the same bits.
 * On the cpu, where a kernel is an op, they are what programs do anyway. `onKernel` is called after each kernel with its label, `onNode` after each node with a way to look at values: a debugger's view.
 * errors: as StepProgram.run; `graph.misuse` with several ranks, whose updates only recorded programs make.
 */
export async function runEagerly(
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
  options: EagerOptions = {},
): Promise<RunOutputs> {
  const isCpu = runtime instanceof CpuRuntime
  const prepared = await whenSettled(() =>
    prepare(runtime, fn, types, {
      sharesBuffers: false,
      ...options,
      ...(isCpu && { isNaive: true }),
    }),
  )
  if (prepared.trace.exchange?.exchangesGradients && options.isUpdating !== false) {
    throw new TabringError(
      'graph.misuse',
      'eager: updates on one rank only and without a communication hook, got a model wrapped for several ranks, or with one. Compile the step, or debug on one rank.',
    )
  }
  if (prepared.meetings.length > 0 && options.isUpdating !== false) {
    throw new TabringError(
      'graph.misuse',
      'eager: expected a function of one rank, got one in which ranks meet (synchronized batch normalization). Compile it, or debug on one rank.',
    )
  }
  const { step } = randomScalarNames
  if (options.isUpdating === false && prepared.trace.scalars.has(step) && !(step in scalars)) {
    throw new TabringError(
      'graph.misuse',
      `detectAnomaly: expected "${step}" among the scalars of a function with random masks, got none. Give the number of the step that failed, so that its masks are drawn.`,
    )
  }
  const restore = options.isUpdating === false ? await keepBuffers(prepared.nodes) : undefined
  try {
    return isCpu
      ? await runOnCpu(prepared, inputs, scalars, options)
      : await runOnGpu(runtime, prepared, inputs, scalars, options)
  } finally {
    restore?.()
  }
}

async function runOnCpu(
  prepared: Prepared,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
  { isUpdating, onKernel, onNode }: EagerOptions,
): Promise<RunOutputs> {
  const program = new CpuProgram(prepared, {
    isUpdating,
    onNode: async (node, look, trace) => {
      onKernel?.(node.op.name)
      await onNode?.(node, look, trace)
    },
  })
  return checkedOutputs(prepared, await program.run(inputs, scalars), isUpdating)
}

/** Without updates there is nothing that ranks agree on, and nothing to refuse an update for. */
function checkedOutputs(
  { trace, outputs }: Prepared,
  values: RunOutputs,
  isUpdating = true,
): RunOutputs {
  if (isUpdating) return passChecks(trace.checks, values)
  const left = new Set([
    ...trace.checks.map(({ name }) => name),
    ...outputs.filter(({ isJoint }) => isJoint).map(({ name }) => name),
  ])
  return Object.fromEntries(Object.entries(values).filter(([name]) => !left.has(name)))
}

async function runOnGpu(
  { gpu, pipelines }: Runtime,
  prepared: Prepared,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
  options: EagerOptions,
): Promise<RunOutputs> {
  for (const { update } of prepared.updates) update.bucket.allocate(gpu)
  const buffers = new ProgramBuffers(gpu, prepared)
  const staged = buffers.write(gpu, prepared, inputs, scalars, options.isUpdating)
  if (staged.length > 0) {
    const encoder = gpu.device.createCommandEncoder({ label: 'staged inputs' })
    for (const input of staged) input.staged.record(encoder, input.buffer)
    gpu.submit(encoder)
    for (const input of staged) input.staged.release()
  }
  const { dispatches, endOfNode, placeOf } = prepared.plan
  const look: Look = async (value) => {
    const { buffer, offset } = buffers.locate(gpu, placeOf(value))
    return toArray(value.type, await download(gpu, buffer, offset, storedBytes(value.type)))
  }
  try {
    const kernels = prepared.nodes.filter(({ op }) => !op.isView)
    let node = 0
    const end = options.isUpdating === false ? prepared.computeEnd : dispatches.length
    for (const [at, { dispatch, bindings }] of dispatches.slice(0, end).entries()) {
      const { pipeline, layout } = await pipelines.get(dispatch)
      const entries = buffers.entries(gpu, bindings)
      gpu.counters.bindGroups++
      gpu.counters.dispatches++
      const encoder = gpu.device.createCommandEncoder({ label: dispatch.label })
      const pass = encoder.beginComputePass()
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, gpu.device.createBindGroup({ layout, entries }))
      pass.dispatchWorkgroups(...dispatch.groups)
      pass.end()
      gpu.submit(encoder)
      options.onKernel?.(dispatch.label)
      while (options.onNode && node < kernels.length && endOfNode[node] <= at + 1) {
        await options.onNode(kernels[node++], look, prepared.trace)
      }
    }
    const outputs: RunOutputs = {}
    for (const [i, { name, type }] of prepared.outputs.entries()) {
      outputs[name] = toArray(type, await download(gpu, buffers.outputs[i], 0, storedBytes(type)))
    }
    return checkedOutputs(prepared, outputs, options.isUpdating)
  } finally {
    buffers.destroy()
  }
}

const storedBytes = (type: TensorType): number =>
  countElements(type.shape) === 0 ? 0 : bytesOf(type)

const toArray = ({ shape, dtype }: TensorType, bytes: ArrayBuffer): HostData =>
  dtype === 'f16'
    ? unpackHalves(new Uint32Array(bytes), countElements(shape))
    : new hostArrays[dtype](bytes)
