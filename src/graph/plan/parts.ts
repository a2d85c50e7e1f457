/**
 * A step over several devices, as one part for each.
 *
 *     webgpu:0   forward ──┐                     ┌── backward, update
 *                          x                     dx
 *     webgpu:1             └── forward, backward ┘── update
 *
 * Ops run where their inputs are, so that `x.to(device)` is all that a model says. What has no place (inputs, constants) is made on each
 * device that reads it. A transfer becomes a send on one device and a receive on the other; each part keeps the order of the whole step, so
 * sends that do not wait and receives that do cannot block each other.
 * cost: the bytes of x once in each direction, through the host.
 */
import type { Op } from '../../kernels/op.ts'
import { type EndAttrs, isEnd, receive, send } from '../../kernels/transfer/ends.ts'
import { type TransferAttrs, transfer } from '../../kernels/transfer/transfer.ts'
import { formatDevice, type PlacedDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { formatCall } from '../trace/format-call.ts'
import { type GraphNode, type GraphValue, storageOf, storedIn } from '../trace/value.ts'
import { inTaskOrder } from './in-task-order.ts'
import type { Place } from './plan.ts'
import type { TracedStep } from './prepare.ts'

/** The part of a step that one device computes. */
export interface Part {
  readonly device: PlacedDevice
  readonly step: TracedStep
}

/** All nodes of a step, in execution order. */
export const allNodes = ({ nodes, joint, updates, after }: TracedStep): GraphNode[] => [
  ...nodes,
  ...joint,
  ...updates.flatMap((update) => update.nodes),
  ...after,
]

/** A transfer of a step. */
export interface TransferNumbers extends Pick<EndAttrs, 'number' | 'tag'> {
  readonly node: GraphNode
  /** The ranks; undefined where a device names none. */
  readonly from: number | undefined
  readonly to: number | undefined
}

/** The transfers among nodes, counted in order: all, and those from one rank to another. `rank`: that of devices that name none. */
export function transfersOf(
  nodes: readonly GraphNode[],
  rank: number | undefined,
): TransferNumbers[] {
  const counts = new Map<string, number>()
  return nodes
    .filter(({ op }) => op === (transfer as Op))
    .map((node, number) => {
      const attrs = node.attrs as TransferAttrs
      const [from, to] = [attrs.from.rank ?? rank, attrs.to.rank ?? rank]
      const way = `${from} ${to}`
      const tag = counts.get(way) ?? 0
      counts.set(way, tag + 1)
      return { node, number, tag, from, to }
    })
}

/** Returns whether a step moves tensors between devices, reads parameters or buffers of several, or has some on a rank's. */
export const isSplit = ({ nodes, trace }: TracedStep): boolean => {
  const inputs = nodes.flatMap((node) => node.inputs)
  const devices = inputs.map((value) => trace.deviceOf(storageOf(value)))
  const stored = devices.filter((device, i) => device && storedIn(inputs[i]))
  return (
    nodes.some(({ op }) => op === (transfer as Op)) ||
    devices.some((device) => device?.rank !== undefined) ||
    new Set(stored.map((device) => formatDevice(device!))).size > 1
  )
}

/**
 * Divides a step among the devices of its tensors, in the order of their first use. `rank`: that of devices that name none.
 *
 * errors: `device.mismatch` for an op whose inputs are on different devices; `graph.misuse` for parts that would wait for each other, and
 * those of `inTaskOrder`.
 */
export function partsOf(step: TracedStep, rank?: number): Part[] {
  const places = new Places(step, rank)
  const parts = places.devices.map((device) => ({ device, step: places.partOn(device) }))
  refuseDeadlock(parts)
  return parts
}

/** Sends never wait, so parts hang only where each waits for a value that another would send later. */
function refuseDeadlock(parts: readonly Part[]): void {
  const sent = new Set<number>()
  const open = parts.map(({ device, step }) => ({
    device,
    ends: allNodes(step).filter(({ op }) => isEnd(op)),
  }))
  const advance = (ends: GraphNode[]): boolean => {
    const stop = ends.findIndex(({ op, attrs }) => {
      const { number } = attrs as EndAttrs
      if (op === (send as Op)) sent.add(number)
      return !sent.has(number)
    })
    return ends.splice(0, stop < 0 ? ends.length : stop).length > 0
  }
  while (open.map(({ ends }) => advance(ends)).some(Boolean));
  const stuck = open.filter(({ ends }) => ends.length > 0)
  if (stuck.length === 0) return
  throw new TabringError(
    'graph.misuse',
    `compile: ${stuck.map(({ device }) => formatDevice(device)).join(' and ')} would wait for each other. A stage of a pipeline must run once per micro-batch, after the stages before it.`,
  )
}

/** Moves each receive, and views of it, to where it is first read: a device waits for another only when it must. */
function receivesLate(nodes: readonly GraphNode[]): GraphNode[] {
  const ordered: GraphNode[] = []
  const waiting = new Map<GraphValue, GraphNode>()
  const take = (node: GraphNode): void => {
    for (const value of node.outputs) waiting.delete(value)
    for (const value of node.inputs) {
      const maker = waiting.get(value)
      if (maker) take(maker)
    }
    ordered.push(node)
  }
  for (const node of nodes) {
    const isLate =
      node.op === (receive as Op) ||
      (node.op.isView && node.inputs.every((value) => waiting.has(value)))
    if (!isLate) take(node)
    else for (const value of node.outputs) waiting.set(value, node)
  }
  for (const node of waiting.values()) take(node)
  return ordered
}

class Places {
  readonly devices: PlacedDevice[] = []
  readonly #step: TracedStep
  /** By name of the device. */
  readonly #byName = new Map<string, PlacedDevice>()
  /** The devices that compute a node: several for constants; both for a transfer. */
  readonly #on = new Map<GraphNode, Set<string>>()
  /** Where a node's results lie, if its inputs or a transfer decide it. */
  readonly #placed = new Map<GraphNode, string>()
  readonly #numbers: ReadonlyMap<GraphNode, TransferNumbers>
  /** By transfer and device: its end there. */
  readonly #ends = new Map<GraphNode, Map<string, GraphNode>>()

  constructor(step: TracedStep, rank: number | undefined) {
    this.#step = step
    const nodes = allNodes(step)
    this.#numbers = new Map(transfersOf(nodes, rank).map((one) => [one.node, one]))
    for (const node of nodes) this.#place(node)
    // What no input decides is made where it is read, which is known from the end on.
    for (const node of nodes.reverse()) this.#settle(node)
  }

  #nameOf(device: PlacedDevice): string {
    const name = formatDevice(device)
    if (!this.#byName.has(name)) {
      this.#byName.set(name, device)
      this.devices.push(device)
    }
    return name
  }

  /** The device of a value; undefined where what reads it decides. */
  #nameOfValue(value: GraphValue): string | undefined {
    const { node } = value
    if (node) return this.#placed.get(node)
    const device = this.#step.trace.deviceOf(value)
    return device && this.#nameOf(device)
  }

  #place(node: GraphNode): void {
    const { op, inputs, attrs } = node
    const names = [...new Set(inputs.map((value) => this.#nameOfValue(value)))].filter(
      (name) => name !== undefined,
    )
    if (names.length > 1) throw this.#mixed(node)
    if (op === (transfer as Op)) {
      const { from, to } = attrs as TransferAttrs
      const [source, target] = [this.#nameOf(from), this.#nameOf(to)]
      this.#placed.set(node, target)
      this.#on.set(node, new Set([source, target]))
      return
    }
    const [name] = names
    if (name === undefined) return
    this.#placed.set(node, name)
    this.#on.set(node, new Set([name]))
  }

  /** Places a node that no input decides, if nothing that reads it has, and what it reads. */
  #settle(node: GraphNode): void {
    let on = this.#on.get(node)
    if (!on) {
      on = new Set([this.#nameOf(this.#step.trace.device)])
      this.#on.set(node, on)
    }
    const readers =
      node.op === (transfer as Op) ? [formatDevice((node.attrs as TransferAttrs).from)] : on
    for (const { node: producer } of node.inputs) {
      if (!producer || this.#placed.has(producer)) continue
      const known = this.#on.get(producer) ?? new Set()
      for (const name of readers) known.add(name)
      this.#on.set(producer, known)
    }
  }

  #mixed(node: GraphNode): TabringError {
    const placed = node.inputs.flatMap((value, at) => {
      const name = this.#nameOfValue(value)
      const tensor = storedIn(value)
      return name === undefined ? [] : [{ at, name, tensor, madeBy: value.node?.id ?? 0 }]
    })
    const places = placed.map(
      ({ at, name, tensor }) => `argument ${at}${tensor ? ` (${tensor.title})` : ''} is on ${name}`,
    )
    const task = this.#step.trace.taskName(node)
    const where = task ? `, ${task}` : ''
    // What flows moves to the layer that reads it, or to what was made last.
    const target =
      placed.find(({ tensor }) => tensor) ??
      placed.reduce((last, one) => (one.madeBy > last.madeBy ? one : last))
    const moved = placed.find(({ name, tensor }) => !tensor && name !== target.name)
    const remedy = moved
      ? `Move argument ${moved.at} there: x.to("${target.name}")`
      : `Move both to one device: await module.to("${target.name}")`
    return new TabringError(
      'device.mismatch',
      `${formatCall(node, this.#step.trace)}${where}: ${places.join(', ')}. ${remedy}.`,
    )
  }

  partOn(device: PlacedDevice): TracedStep {
    const { trace, inputs, outputs, nodes, joint, updates, after, fixed, syncPointNumbers } =
      this.#step
    const name = formatDevice(device)
    const own = (list: readonly GraphNode[]) =>
      list
        .filter((node) => this.#on.get(node)!.has(name))
        .map((node) => (node.op === (transfer as Op) ? this.#endOf(node, name) : node))
    const { stages } = trace
    const here = own(nodes)
    const part = {
      nodes: receivesLate(stages ? inTaskOrder(here, stages.order.tasksOn(device), trace) : here),
      joint: own(joint),
      after: own(after),
    }
    const isHere = (value: GraphValue): boolean => {
      const { node } = storageOf(value)
      return node !== undefined && this.#firstOn(node) === name
    }
    const outputsHere = new Map<number, number>()
    const fixedHere = new Map(
      [...fixed].flatMap(([value, place]): [GraphValue, Place][] => {
        if (!isHere(value)) return []
        if (place.kind !== 'output') return [[value, place]]
        const index = outputsHere.size
        outputsHere.set(place.index, index)
        return [[value, { ...place, index }]]
      }),
    )
    const updatesHere = updates.filter(
      ({ bucket: { device } }) => formatDevice(device ?? trace.device) === name,
    )
    const read = new Set<string>()
    for (const node of [...part.nodes, ...part.joint, ...part.after])
      for (const value of node.inputs) {
        const { leaf } = storageOf(value)
        if (leaf?.kind === 'input') read.add(leaf.name)
      }
    return {
      trace,
      inputs: Object.fromEntries(Object.entries(inputs).filter(([input]) => read.has(input))),
      outputs: [...outputsHere.keys()].map((index) => outputs[index]),
      ...part,
      updates: updatesHere,
      fixed: fixedHere,
      syncPointNumbers,
      gradientNode: (gradient) => {
        const node = this.#step.gradientNode(gradient)
        return node.op === (transfer as Op) ? this.#endOf(node, name) : node
      },
    }
  }

  /** A transfer as one of its devices has it, with the same id and the same values. */
  #endOf(node: GraphNode, name: string): GraphNode {
    const ends = this.#ends.get(node) ?? new Map<string, GraphNode>()
    this.#ends.set(node, ends)
    const { from, to } = node.attrs as TransferAttrs
    const isSource = formatDevice(from) === name
    const peer = isSource ? to : from
    const { number, tag } = this.#numbers.get(node)!
    const { trace } = this.#step
    const of = trace.taskOf(node)
    const label = of && `micro-batch ${of.microBatch}, stage ${of.stage}`
    const task = trace.taskName(node)
    const attrs: EndAttrs = { number, tag, peer, ...(label && { label, task }) }
    const end =
      ends.get(name) ??
      (isSource
        ? { ...node, attrs, op: send as Op, outputs: [] }
        : { ...node, attrs, op: receive as Op, inputs: [] })
    ends.set(name, end)
    return end
  }

  /** The one device whose copy of a node's results counts: where they lie, or the first that makes them. */
  #firstOn(node: GraphNode): string {
    return this.#placed.get(node) ?? [...this.#on.get(node)!].sort()[0]
  }
}
