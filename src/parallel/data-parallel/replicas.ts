import { calledAs } from '../../util/called-as.ts'
/**
 * The parts of which DataParallel is made; each can be used alone inside a compiled function.
 *
 *     webgpu:0   x ─ scatter ─ x0 ─ forward ─ y0 ─┐
 *                 │   w                           gather ─ y
 *                 │   └ replicate ┐               │
 *     webgpu:1    └─ x1 ───────── w' forward ─ y1 ┘
 *
 * cost per step: all parameters to each other device, its share of x and of the outputs, and all its gradients back.
 */

import { ofRows } from '../../graph/functions/linear.ts'
import { cat, chunk } from '../../graph/functions/shape.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { checkModule, type Module } from '../../nn/module.ts'
import {
  type DeviceSpec,
  formatDevice,
  type PlacedDevice,
  placedDevice,
} from '../../util/device.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkList, checkNumber } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { mapTensors, zipTensors } from './nested.ts'

/** errors: `config.invalid` for a device that is listed twice, or none. */
function placedDevices(where: string, devices: readonly DeviceSpec[]): PlacedDevice[] {
  checkArgument(where, 'devices', devices, Array.isArray(devices), 'a list of devices')
  const placed = devices.map((spec) => placedDevice(spec))
  const names = placed.map(formatDevice)
  const twice = names.find((name, i) => names.indexOf(name) < i)
  if (twice === undefined && names.length > 0) return placed
  const what = twice === undefined ? 'devices lists none' : `devices lists ${twice} twice`
  throw new TabringError('config.invalid', `${where}: ${what}. List each device once: [0, 1].`)
}

/** errors: `config.invalid` for an axis that is no whole number. */
export const checkDim = (where: string, dim: number) =>
  checkNumber(where, 'dim', dim, Number.isInteger, 'a whole number', true)

/**
 * Divides arguments among devices, like torch.nn.parallel.scatter: a list of arguments for each device.
 *
 * Tensors are cut along `dim` as by `chunk`, those in arrays, maps and plain objects too; anything else goes to all devices as it is. A batch
 * smaller than the number of devices leaves the last ones without a share.
 * errors: `config.invalid` for a device that is listed twice; `shape.mismatch` for tensors without `dim`, as scalars are, and for those that
 * give different numbers of shares.
 */
export function scatter(
  args: readonly unknown[],
  devices: readonly DeviceSpec[],
  dim = 0,
): unknown[][] {
  checkArgument('scatter', 'args', args, Array.isArray(args), 'a list of arguments')
  checkDim('scatter', dim)
  const placed = placedDevices('scatter', devices)
  let shares = placed.length
  let shape: string | undefined
  const cut = new Map<Tensor, Tensor[]>()
  mapTensors([...args], (tensor) => {
    const own = formatShape(tensor.shape)
    if (tensor.shape.at(dim) === undefined) {
      throw new ShapeError(
        'shape.mismatch',
        `scatter: dim must be an axis of each tensor, and one of ${own} has no axis ${dim} to cut for ${placed.length} devices. Give it that axis, or pass a number, which goes to all of them.`,
      )
    }
    activeTrace('scatter')
    const parts = chunk(tensor, placed.length, dim)
    if (shape !== undefined && parts.length !== shares) {
      throw new ShapeError(
        'shape.mismatch',
        `scatter: a tensor of ${own} makes ${parts.length} shares for ${placed.length} devices, and one of ${shape} ${shares}. Give them the same length along axis ${dim}.`,
      )
    }
    shares = parts.length
    shape = own
    cut.set(tensor, parts)
    return tensor
  })
  return placed
    .slice(0, shares)
    .map(
      (device, i) => mapTensors([...args], (tensor) => cut.get(tensor)![i].to(device)) as unknown[],
    )
}

/** A module that runs on one device with copies of the parameters and buffers, made in each step. */
export interface Replica {
  readonly device: PlacedDevice
  /**
   * The module's forward there. Gradients flow back to the module's own parameters. What forward sets on the module, and what it changes in
   * buffers that lie on another device, is lost, as in PyTorch.
   */
  forward(...args: unknown[]): unknown
}

/**
 * A replica of the module for each device, like torch.nn.parallel.replicate.
 *
 * errors: `config.invalid` for a device that is listed twice; `graph.misuse` for a module that ranks have divided.
 */
export function replicate(module: Module, devices: readonly DeviceSpec[]): Replica[] {
  checkModule('replicate', module)
  const divided = module.parameters().find(({ sharedBy }) => sharedBy)
  if (divided) {
    throw new TabringError(
      'graph.misuse',
      `DataParallel: ranks have divided ${divided.title}, by fullyShard or parallelizeModule, so no device has the whole to copy. Use one of them.`,
    )
  }
  const forward = module.forward.bind(module) as (...args: unknown[]) => unknown
  const trace = activeTrace('replicate')
  const buffers = module.buffers().map(({ value }) => value)
  return placedDevices('replicate', devices).map((device) => {
    // Taken before any replica changes them.
    const copies = trace.copiesOf(buffers, device)
    return {
      device,
      forward: (...args) =>
        trace.withCopies(device, copies, () => keepingAttributes(module, () => forward(...args))),
    }
  })
}

/** Takes back what `fn` sets on a module and its submodules. */
function keepingAttributes<T>(module: Module, fn: () => T): T {
  const before = [...module.modules()].map((one) => ({ one, attributes: { ...one } }))
  try {
    return fn()
  } finally {
    for (const { one, attributes } of before) {
      for (const name of Object.keys(one))
        if (!(name in attributes)) Reflect.deleteProperty(one, name)
      Object.assign(one, attributes)
    }
  }
}

/**
 * Calls each replica with its arguments, like torch.nn.parallel.parallel_apply; the devices work at the same time.
 *
 * `dim`: the axis of the batch. Each replica's `sampleCount` is how many rows of its first tensor count.
 */
export function parallelApply(
  replicas: readonly Replica[],
  args: readonly (readonly unknown[])[],
  dim = 0,
): unknown[] {
  const isReplica = (one: unknown) => isRecord(one) && typeof one.forward === 'function'
  checkList('parallelApply', 'replicas', replicas, isReplica, 'replicas')
  checkDim('parallelApply', dim)
  checkList('parallelApply', 'args', args, Array.isArray, 'lists of arguments')
  if (replicas.length !== args.length) {
    throw new TabringError(
      'graph.misuse',
      `parallelApply: args must have arguments for each of ${replicas.length} replicas, got ${args.length}. Replicate to as many devices as scatter used.`,
    )
  }
  let first = 0
  return replicas.map((replica, i) => {
    const forward = () => replica.forward(...args[i])
    const rows = rowsOf(args[i], dim)
    if (rows === undefined) return forward()
    activeTrace('parallelApply')
    first += rows
    return ofRows(first - rows, rows, forward)
  })
}

/** Those of the first tensor, if there is one. */
function rowsOf(args: readonly unknown[], dim: number): number | undefined {
  let rows: number | undefined
  mapTensors([...args], (tensor) => {
    rows ??= tensor.shape.at(dim)
    return tensor
  })
  return rows
}

/**
 * Joins outputs on a device, like torch.nn.parallel.gather: tensors along `dim`, scalars into a vector, in arrays, maps and plain objects too.
 *
 * errors: `shape.mismatch` for an empty list, and for outputs that differ in more than `dim`: pad sequences to one length, `padPackedSequence(…, { totalLength })`.
 */
export function gather(outputs: readonly unknown[], device: DeviceSpec, dim = 0): unknown {
  checkArgument('gather', 'outputs', outputs, Array.isArray(outputs), 'a list of outputs')
  checkDim('gather', dim)
  if (outputs.length === 0) {
    throw new ShapeError(
      'shape.mismatch',
      'gather: outputs has nothing to join. Pass a list with the output of each device.',
    )
  }
  return zipTensors(outputs, (tensors) => {
    activeTrace('gather')
    const here = tensors.map((tensor) => calledAs('gather', 'to', () => tensor.to(device)))
    if (here[0].shape.length === 0) return cat(here.map((scalar) => scalar.reshape([1])))
    const axis = dim < 0 ? dim + here[0].shape.length : dim
    const other = here.find(({ shape }) =>
      shape.some((length, i) => i !== axis && length !== here[0].shape[i]),
    )
    if (!other) return calledAs('gather', 'cat', () => cat(here, dim))
    throw new ShapeError(
      'shape.mismatch',
      `gather: outputs of ${formatShape(here[0].shape)} and ${formatShape(other.shape)} differ in more than axis ${axis}. Pad sequences to the length of the whole batch: padPackedSequence(packed, { totalLength }).`,
    )
  })
}
