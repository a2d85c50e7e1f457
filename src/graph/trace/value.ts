import type { Op, OpCall, Value } from '../../kernels/op.ts'
import type { PlacedDevice } from '../../util/device.ts'
import { checkCount, type TensorType } from '../../util/shape.ts'
import type { Memory } from '../memory/memory-device.ts'
import type { Pool } from '../memory/pool.ts'

/**
 * The axis along which ranks have parts of a tensor.
 *
 * `span`: how many neighbours along it a rank has in a row. All of the axis, or less where the whole axis is several blocks, of each of which
 * every rank has a part: queries, keys and values; or samples that heads were joined with.
 */
export interface DividedAxis {
  readonly axis: number
  readonly span: number
}

/** A module, as what reads its tensors knows it. */
export interface Holder {
  /** Returns what says whether it still has the parameters that it has now, no others, and the same modules without any. */
  watchParts(): () => boolean
  /** Its parameters, as it has them now. */
  parameters(): readonly StoredLeaf[]
}

/** Where a module holds a tensor, or a module that does. */
export interface Holding {
  readonly within: Holding | undefined
  /** Returns whether it still does. */
  isKept(): boolean
  readonly holder: Holder
}

/** Every place in which a tensor is held, from its module's to the outermost one. */
export function* holdingsOf({ heldAt }: StoredLeaf): Iterable<Holding> {
  for (let holding = heldAt; holding; holding = holding.within) yield holding
}

/** A Parameter or ModuleBuffer as values see it, which import no tensors: contents that outlive programs. */
export interface StoredLeaf {
  readonly name: string
  /** Its name in quotes, for errors, or its shape where it has none. */
  readonly title: string
  readonly requiresGrad: boolean
  /** Of a parameter: whether no traced function has read `requiresGrad` since it was set to another value. */
  readonly isGradChanged?: boolean
  /** True if this rank has a part of it, which ops take only gathered with the others'. */
  readonly isShard?: boolean
  /** The function that has freed its contents, and put this rank's part in its place. */
  readonly dividedBy?: string | undefined
  /** The function that is about to divide or replicate it, and has not ended. */
  readonly sharingBy?: string | undefined
  /** The ranks that have the other parts of it. */
  readonly sharedBy?: { readonly size: number } | undefined
  /** Where the module holds it that named it. */
  readonly heldAt?: Holding | undefined
  /** Along which axis they have them. */
  readonly dividedAlong?: DividedAxis | undefined
  /** Where it is, or to which device it was moved; undefined until a program or `to` decides. */
  readonly device: PlacedDevice | undefined
  /** Where it lives in this memory, making a place for it if it has none. */
  place(memory: Memory): { readonly pool: Pool; readonly start: number }
  /** errors: `device.mismatch`, beginning with `what`, when it is in other memory. */
  requireOn(memory: Memory, what: string): void
}

/** Where a value that no op computes comes from. */
export type Leaf =
  /** Written before each run, by name. */
  | { readonly kind: 'input'; readonly name: string }
  /** A parameter's current contents, wherever it lives on the device. */
  | { readonly kind: 'parameter'; readonly parameter: StoredLeaf }
  /** A module's buffer, likewise. */
  | { readonly kind: 'buffer'; readonly buffer: StoredLeaf }
  /** Part of a pool, from element `start` on. */
  | { readonly kind: 'pool'; readonly pool: Pool; readonly start: number }

/** An op applied to values. Ids rise in the order of tracing, so every node's inputs have smaller ids. */
export interface GraphNode {
  readonly id: number
  readonly op: Op
  readonly attrs: unknown
  readonly inputs: readonly GraphValue[]
  readonly outputs: readonly GraphValue[]
}

/**
 * Called in backward when the gradients of some values are complete, once for each backward that reaches one of them.
 *
 * The values become complete together: it is a single one, or no node stands between them.
 */
export interface GradientHook {
  readonly values: readonly GraphValue[]
  /** Returns what backward continues with instead of the gradients; undefined for no gradient. */
  run(gradients: readonly (GraphValue | undefined)[]): readonly (GraphValue | undefined)[]
}

/** A tensor in a graph: a leaf, or one output of a node. Nothing is computed by making one. */
export class GraphValue implements Value {
  readonly type: TensorType
  readonly leaf: Leaf | undefined
  /** The node that computes it, and which of its outputs it is; set once, by `emitNode`. */
  node: GraphNode | undefined
  outputIndex = 0
  /** In the order in which they run; undefined for most values. */
  hooks: Set<GradientHook> | undefined

  constructor(type: TensorType, leaf?: Leaf) {
    this.type = type
    this.leaf = leaf
  }
}

let nextId = 1

/** The id of the node that is emitted next. */
export const nextNodeId = (): number => nextId

/** Infers the outputs' types and returns the new node. errors: ShapeError from the op. */
export function emitNode(op: Op, inputs: readonly GraphValue[], attrs: unknown): GraphNode {
  const types = op.infer(
    inputs.map(({ type }) => type),
    attrs,
  )
  for (const { shape } of types) checkCount(op.name, shape)
  return makeNode(nextId++, op, inputs, attrs, types)
}

/** A node with given output types; rewrites use it to keep an id. */
export function makeNode(
  id: number,
  op: Op,
  inputs: readonly GraphValue[],
  attrs: unknown,
  types: readonly TensorType[],
): GraphNode {
  const outputs = types.map((type) => new GraphValue(type))
  const node: GraphNode = { id, op, attrs, inputs, outputs }
  outputs.forEach((value, index) => {
    value.node = node
    value.outputIndex = index
  })
  return node
}

/** `also` and all nodes that it and the values depend on, in the order of their ids. */
export function nodesBehind(
  values: Iterable<GraphValue>,
  also: readonly GraphNode[] = [],
): GraphNode[] {
  const seen = new Set<GraphNode>(also)
  const open = [...values, ...also.flatMap(({ inputs }) => inputs)]
  for (let value = open.pop(); value; value = open.pop()) {
    const { node } = value
    if (!node || seen.has(node)) continue
    seen.add(node)
    open.push(...node.inputs)
  }
  return [...seen].sort((a, b) => a.id - b.id)
}

/** Returns whether an op's output is the memory of its first input. */
export const sharesMemory = ({ isView, isInPlace }: Op): boolean => Boolean(isView || isInPlace)

/** The value whose memory this one shares: itself, or what a chain of views and ops in place began with. */
export function storageOf(value: GraphValue): GraphValue {
  let root = value
  while (root.node && sharesMemory(root.node.op)) root = root.node.inputs[0]
  return root
}

/** The parameter or buffer that a value is. */
export function storedIn(value: GraphValue): StoredLeaf | undefined {
  const { leaf } = storageOf(value)
  return leaf?.kind === 'parameter'
    ? leaf.parameter
    : leaf?.kind === 'buffer'
      ? leaf.buffer
      : undefined
}

/** The node that writes the value last, through views; undefined for a leaf. */
export function makerOf({ node }: GraphValue): GraphNode | undefined {
  let maker = node
  while (maker?.op.isView) maker = maker.inputs[0].node
  return maker
}

/** A node's use of its op, as kernels see it. */
export const callOf = ({ inputs, outputs, attrs }: GraphNode): OpCall => ({
  inputs: inputs.map(({ type }) => type),
  outputs: outputs.map(({ type }) => type),
  attrs,
})
