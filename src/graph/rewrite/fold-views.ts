import { split } from '../../kernels/cat/cat.ts'
import { type MatmulAttrs, type MatmulForm, matmul } from '../../kernels/matmul/matmul.ts'
import type { Op } from '../../kernels/op.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { contiguous, isContiguous, reshapeStrided, type Strided } from '../../kernels/strided.ts'
import { expand } from '../../kernels/sum/sum.ts'
import { regionStrided } from '../../kernels/view/region.ts'
import { strided, type ViewAttrs, view } from '../../kernels/view/view.ts'
import { type Shape, sameShape, stridesOf } from '../../util/shape.ts'
import type { GraphNode, GraphValue } from '../trace/value.ts'
import type { Editor } from './editor.ts'

// Views (permute, slice, expand, split, ...) are copies when they run alone. Here a matmul learns to read its operands
// where they lie, and to store its result with its axes in another order, so that attention's heads, transposed weights
// and the parts of a joint projection cost no copies; views in a row become one copy.

/** Where a value's elements are: strides over the memory of `root`. */
interface Placement {
  readonly root: GraphValue
  readonly strided: Strided
}

/**
 * Follows a value through views and reshapes up to what computes it.
 *
 * What an op changes in place is not read through its views: they hold what was there before.
 */
function placementOf(
  editor: Editor,
  value: GraphValue,
  changed: ReadonlySet<GraphValue>,
): Placement {
  const placement = followed(editor, value)
  return changed.has(editor.storageOf(placement.root))
    ? { root: value, strided: contiguous(value.type.shape) }
    : placement
}

function followed(editor: Editor, value: GraphValue): Placement {
  const whole = { root: value, strided: contiguous(value.type.shape) }
  const node = editor.producerOf(value)
  if (!node) return whole
  const behind = () => followed(editor, editor.inputsOf(node)[0])
  const { shape } = value.type
  if (node.op === (reshape as Op)) {
    const { root, strided: from } = behind()
    const same = reshapeStrided(from, shape)
    return same ? { root, strided: same } : whole
  }
  if (node.op === (view as Op)) {
    const { root, strided: from } = behind()
    return { root, strided: regionStrided(node.attrs as ViewAttrs, shape, from) }
  }
  if (node.op === (expand as Op)) {
    const { root, strided: from } = behind()
    const added = shape.length - from.shape.length
    const strides = shape.map((size, axis) =>
      axis < added || (from.shape[axis - added] === 1 && size !== 1)
        ? 0
        : from.strides[axis - added],
    )
    return { root, strided: { shape, strides, offset: from.offset } }
  }
  if (node.op === (split as Op)) {
    const { axis, sizes } = node.attrs as { axis: number; sizes: readonly number[] }
    const { root, strided: from } = behind()
    const part = node.outputs.findIndex((output) => editor.find(output) === value)
    const start = sizes.slice(0, part).reduce((sum, size) => sum + size, 0)
    const offset = from.offset + start * from.strides[axis]
    return { root, strided: { shape, strides: from.strides, offset } }
  }
  return whole
}

/** The value that a chain of reshapes began with: the same memory. */
function behindReshapes(editor: Editor, value: GraphValue): GraphValue {
  const node = editor.producerOf(value)
  return node?.op === (reshape as Op) ? behindReshapes(editor, editor.inputsOf(node)[0]) : value
}

/** The form with one operand read the other way round; undefined where there is no kernel for it. */
const turned: Record<'a' | 'b', Record<MatmulForm, MatmulForm | undefined>> = {
  a: { nn: 'tn', tn: 'nn', nt: undefined },
  b: { nn: 'nt', nt: 'nn', tn: undefined },
}

const swapLast = <T>(list: readonly T[]): T[] => [...list.slice(0, -2), ...list.slice(-2).reverse()]

/** How a matmul of `form` can read an operand that lies like this, or undefined. */
function readable(
  side: 'a' | 'b',
  form: MatmulForm,
  from: Strided,
): { form: MatmulForm; strided: Strided } | undefined {
  if (from.strides.some((stride) => stride < 0)) return undefined
  const isRowMajor = ({ shape, strides }: Strided) => {
    const [rows, columns] = shape.slice(-2)
    const [lead, step] = strides.slice(-2)
    return (columns === 1 || step === 1) && (rows === 1 || lead > 0)
  }
  if (isRowMajor(from)) return { form, strided: from }
  const other = turned[side][form]
  const across = { ...from, shape: swapLast(from.shape), strides: swapLast(from.strides) }
  return other && isRowMajor(across) ? { form: other, strided: across } : undefined
}

/** Matmuls read views in place; views in a row become one copy; what nobody reads any more goes. */
export function foldViews(editor: Editor): void {
  const { changed } = editor
  for (const node of editor.nodes) {
    if (node.op === (view as Op)) turnProduct(editor, node)
  }
  for (const node of editor.nodes) {
    if (node.op === (matmul as Op)) readInPlace(editor, node, changed)
  }
  // The last view first: its placement then reaches back through all views before it.
  for (const node of editor.nodes.reverse()) {
    if (node.op === (view as Op)) joinCopies(editor, node, changed)
  }
  removeUnread(editor)
}

function readInPlace(editor: Editor, node: GraphNode, changed: ReadonlySet<GraphValue>): void {
  const inputs = editor.inputsOf(node)
  let attrs = node.attrs as MatmulAttrs
  for (const [n, side] of (['a', 'b'] as const).entries()) {
    const { root, strided: from } = placementOf(editor, inputs[n], changed)
    if (root === behindReshapes(editor, inputs[n])) continue
    const read = readable(side, attrs.form, from)
    if (!read) continue
    // Sums come from form tn alone.
    if ((attrs.rowSums || attrs.colSums) && read.form !== attrs.form) continue
    inputs[n] = root
    const { form } = read
    const isWhole = isContiguous(read.strided) && sameShape(read.strided.shape, root.type.shape)
    const { [side]: _, ...others } = attrs
    attrs = isWhole ? { ...others, form } : { ...others, form, [side]: read.strided }
  }
  if (attrs !== node.attrs) editor.replace([node], matmul as Op, inputs, attrs, node.outputs)
}

function joinCopies(editor: Editor, node: GraphNode, changed: ReadonlySet<GraphValue>): void {
  const [output] = node.outputs
  const { root, strided: from } = placementOf(editor, editor.find(output), changed)
  const [input] = editor.inputsOf(node)
  if (root === editor.find(output) || root === behindReshapes(editor, input)) return
  editor.replace([node], strided as Op, [root], from, [output])
}

function removeUnread(editor: Editor): void {
  const movers = new Set<Op>([view, expand, split, strided, reshape] as unknown as Op[])
  for (const node of editor.nodes.reverse()) {
    if (!movers.has(node.op)) continue
    if (node.outputs.every((value) => editor.uses(value) === 0)) editor.remove(node)
  }
}

/** The axes in the order in which a copy of a whole tensor of `shape` has them, or undefined where it is no such copy. */
function orderOf({ shape: to, strides, offset }: Strided, shape: Shape): number[] | undefined {
  const own = stridesOf(shape)
  const left = new Set(shape.keys())
  const order = to.map((size, axis) => {
    const from = [...left].find(
      (d) => shape[d] === size && (size === 1 || own[d] === strides[axis]),
    )
    if (from !== undefined) left.delete(from)
    return from ?? -1
  })
  return offset === 0 && left.size === 0 && !order.includes(-1) ? order : undefined
}

/** The matmul whose result a copy alone reads, and the order of axes that the copy gives it. */
function copiedProduct(editor: Editor, node: GraphNode) {
  const [result] = editor.inputsOf(node)
  const product = editor.producerOf(result)
  if (product?.op !== (matmul as Op) || editor.uses(result) !== 1) return undefined
  if (editor.isTouchedBetween(product, node)) return undefined
  const { shape } = result.type
  const copy =
    node.op === (view as Op)
      ? regionStrided(node.attrs as ViewAttrs, (node.attrs as ViewAttrs).shape, contiguous(shape))
      : (node.attrs as Strided)
  const order = orderOf(copy, shape)
  const attrs = product.attrs as MatmulAttrs
  return order && !attrs.store && !attrs.rowSums && !attrs.colSums
    ? { product, attrs, order }
    : undefined
}

/** The transpose of a product is the product of its operands in the other order, where they can be read that way. */
function turnProduct(editor: Editor, node: GraphNode): void {
  const copied = copiedProduct(editor, node)
  if (!copied) return
  const { product, attrs, order } = copied
  const isTransposed = order.join() === swapLast([...order.keys()]).join()
  if (!isTransposed || attrs.form === 'nn' || attrs.epilogue.length > 0) return
  const [a, b] = editor.inputsOf(product)
  editor.replace([product, node], matmul as Op, [b, a], attrs, [node.outputs[0]])
}

/** A copy of a matmul's result whose last axis stays becomes the order in which the matmul stores. */
export function foldStores(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op !== (view as Op) && node.op !== (strided as Op)) continue
    const copied = copiedProduct(editor, node)
    if (!copied || copied.order.at(-1) !== copied.order.length - 1) continue
    const { product, attrs, order } = copied
    editor.replace(
      [product, node],
      matmul as Op,
      editor.inputsOf(product),
      { ...attrs, store: order },
      [node.outputs[0]],
    )
  }
}
