import { download } from '../../gpu/readback.ts'
import { unpackHalves } from '../../kernels/half.ts'
import type { Op } from '../../kernels/op.ts'
import { calledAs } from '../../util/called-as.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { bytesOf, countElements, type TensorType } from '../../util/shape.ts'
import type { OnNode, ReadValue } from '../inside/probe.ts'
import type { HostData } from '../memory/host-values.ts'
import { type AnyRuntime, checkRuntime, ReferenceRuntime, type Runtime } from '../memory/runtime.ts'
import { isSplit } from '../plan/parts.ts'
import {
  checkTypes,
  type InputTypes,
  type Prepared,
  type PrepareOptions,
  planStep,
  type TracedFunction,
  traceStep,
} from '../plan/prepare.ts'
import { hostArrays, type RunInputs, type RunOutputs, refuseSurplus } from '../plan/step-program.ts'
import { ProgramBuffers } from '../run/program-buffers.ts'
import { whenSettled } from '../trace/exchange.ts'
import type { ModuleBuffer } from '../trace/module-buffer.ts'
import { randomScalarNames } from '../trace/random.ts'
import type { GraphNode } from '../trace/value.ts'
import { storageOf } from '../trace/value.ts'
import { createReferenceProgram } from './create-program.ts'
import { passChecks } from './output-checks.ts'

export interface EagerOptions extends PrepareOptions {
  /** True if the run may change parameters, module buffers and step counts; default true. If false, random masks need `randomStep`. */
  readonly allowUpdates?: boolean
  readonly onKernel?: (label: string) => void
  /** Called after the kernels of each node in forward and backward. */
  readonly onNode?: OnNode
}

/**
 * Runs a function op by op: traced again each time, one submit per kernel, with a separate buffer for each intermediate and no memory plan.
 *
 * Kernels and fused groups are those of the compiled program, so results on one adapter have the same bits. On `reference` each kernel is one
 * op, as in compiled programs. `onKernel` is called after each kernel with its label, `onNode` after each node with a way to read values,
 * like a debugger.
 * errors: as StepProgram.run; `graph.misuse` with several ranks, because only compiled programs can update them.
 */
export function runEagerly(
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
  options: EagerOptions = {},
): Promise<RunOutputs> {
  const where = options?.allowUpdates === false ? 'detectAnomaly' : 'runEagerly'
  return calledAs(where, ['compile', 'run', 'runEagerly'], () =>
    traceAndRun(runtime, fn, types, inputs, scalars, options),
  )
}

async function traceAndRun(
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
  options: EagerOptions,
): Promise<RunOutputs> {
  checkRuntime('runEagerly', runtime)
  checkTypes(types)
  refuseSurplus(types, inputs, scalars)
  const isReference = runtime instanceof ReferenceRuntime
  const own = { sharesBuffers: false, ...options, ...(isReference && { useNaiveKernels: true }) }
  const prepared = await whenSettled(() => {
    const traced = traceStep(runtime.device, fn, types, own)
    if (isSplit(traced)) throw splitRefusal('is over several devices', options)
    if (traced.trace.groups && options.allowUpdates === false)
      throw splitRefusal(
        'needs the other ranks (fullyShard, replicate, parallelizeModule)',
        options,
      )
    return planStep(runtime, traced, own)
  })
  if (prepared.trace.exchange?.exchangesGradients && options.allowUpdates !== false) {
    throw new TabringError(
      'graph.misuse',
      'runEagerly: the model is wrapped for several ranks or has a communication hook, and eager runs update on one rank only. Compile the step, or debug on one rank.',
    )
  }
  if (prepared.syncPoints.length > 0 && options.allowUpdates !== false) {
    throw new TabringError(
      'graph.misuse',
      'runEagerly: the function needs the other ranks (SyncBatchNorm, fullyShard), and eager runs use one rank only. Compile the function, or debug on one rank.',
    )
  }
  const { step } = randomScalarNames
  if (options.allowUpdates === false && prepared.trace.scalars.has(step) && !(step in scalars)) {
    throw new TabringError(
      'graph.misuse',
      `detectAnomaly: the function has random masks, so "${clipped(step)}" must be among the scalars. Pass the number of the failed step to draw the same masks.`,
    )
  }
  const restore = options.allowUpdates === false ? await keepBuffers(prepared.nodes) : undefined
  try {
    return isReference
      ? await runReferences(prepared, inputs, scalars, options)
      : await runOnGpu(runtime, prepared, inputs, scalars, options)
  } finally {
    restore?.()
  }
}

/** One rank and one device alone have a part of what the function computes. */
const splitRefusal = (how: string, { allowUpdates }: EagerOptions): TabringError =>
  new TabringError(
    'graph.misuse',
    `${allowUpdates === false ? 'detectAnomaly' : 'runEagerly'}: the function ${how}, and this runs on one device of one rank only. Debug with the whole model on one device.`,
  )

async function runReferences(
  prepared: Prepared,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
  { allowUpdates, onKernel, onNode }: EagerOptions,
): Promise<RunOutputs> {
  const program = await createReferenceProgram(prepared, {
    allowUpdates,
    onNode: async (node, readValue, trace) => {
      onKernel?.(node.op.name)
      await onNode?.(node, readValue, trace)
    },
  })
  return checkedOutputs(prepared, await program.run(inputs, scalars), allowUpdates)
}

/** Without updates there is nothing that ranks agree on, and nothing to refuse an update for. */
function checkedOutputs(
  { trace, outputs }: Prepared,
  values: RunOutputs,
  allowUpdates = true,
): RunOutputs {
  if (allowUpdates) return passChecks(trace.checks, values)
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
  const staged = buffers.write(gpu, prepared, inputs, scalars, options.allowUpdates)
  if (staged.length > 0) {
    const encoder = gpu.device.createCommandEncoder({ label: 'staged inputs' })
    for (const input of staged) input.staged.record(encoder, input.buffer)
    gpu.submit(encoder)
    for (const input of staged) input.staged.release()
  }
  const { dispatches, endOfNode, placeOf } = prepared.plan
  const readValue: ReadValue = async (value) => {
    const { buffer, offset } = buffers.locate(gpu, placeOf(value))
    return toArray(value.type, await download(gpu, buffer, offset, storedBytes(value.type)))
  }
  try {
    const kernels = prepared.nodes.filter(({ op }) => !op.isView)
    let node = 0
    const end = options.allowUpdates === false ? prepared.computeEnd : dispatches.length
    for (const [at, { dispatch, bindings }] of dispatches.slice(0, end).entries()) {
      const { pipeline, layout } = await pipelines.get(dispatch)
      const bound = buffers.entries(gpu, bindings)
      const entries = bound.map(({ binding, ...resource }) => ({ binding, resource }))
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
        await options.onNode(kernels[node++], readValue, prepared.trace)
      }
    }
    const outputs: RunOutputs = {}
    for (const [i, { name, type }] of prepared.outputs.entries()) {
      outputs[name] = toArray(type, await download(gpu, buffers.outputs[i], 0, storedBytes(type)))
    }
    return checkedOutputs(prepared, outputs, options.allowUpdates)
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

/** Reads what nodes change in place of modules' buffers, and returns what puts it back. cost: a readback for each buffer. */
async function keepBuffers(nodes: readonly GraphNode[]): Promise<() => void> {
  const changed = new Set<ModuleBuffer>()
  for (const { op, inputs } of nodes) {
    for (const at of (op as Op).updates ?? []) {
      const { leaf } = storageOf(inputs[at])
      if (leaf?.kind === 'buffer') changed.add(leaf.buffer as ModuleBuffer)
    }
  }
  const kept = await Promise.all(
    [...changed].map(async (buffer) => [buffer, await buffer.read()] as const),
  )
  return () => {
    for (const [buffer, data] of kept) buffer.receive(data)
  }
}
