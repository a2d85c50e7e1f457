import { clipped } from '../../util/clipped.ts'
import { ShapeError } from '../../util/errors.ts'
import { formatShape } from '../../util/shape.ts'
import { mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { itemsOf, mustBeFloat, notUnderstood } from '../trace/tensor-arguments.ts'

// einsum: operands are joined from left to right. Each join sums what one side alone has and nobody asks for again, then
// brings both sides into the form of one batched matmul, or of a broadcast product where nothing is contracted. Transposes
// on the way cost nothing where the matmul can read its operand in place.

/** A tensor with a letter for each axis. */
interface Labelled {
  readonly tensor: Tensor
  readonly labels: readonly string[]
}

const fail = (equation: string, expected: string, got: string, advice: string): ShapeError =>
  new ShapeError(
    'shape.mismatch',
    `einsum, equation "${clipped(equation)}": ${expected}, got ${got}. ${advice}`,
  )

/**
 * Returns the sum of products that `equation` describes, like torch.einsum: contractions, batch axes, transposes, sums, diagonals.
 *
 * Letters name axes; letters missing from the result are summed over. Without "->" the result has the letters that occur once, in
 * alphabetical order. "..." stands for further leading axes. Axes of size 1 broadcast.
 * errors: `shape.mismatch`, naming the letter.
 */
export function einsum(equation: string, ...tensors: Tensor[]): Tensor {
  if (typeof equation !== 'string')
    throw notUnderstood('einsum', 'equation', 'letters such as "ij,jk->ik"', equation)
  mustBeTensor('einsum', itemsOf('tensors', tensors))
  mustBeFloat('einsum', ...tensors)
  const { inputs, output } = parse(equation, tensors)
  const sizes = new Map<string, { size: number; tensor: Tensor }>()
  inputs.forEach((labels, n) => {
    labels.forEach((label, axis) => {
      const size = tensors[n].shape[axis]
      const known = sizes.get(label)
      const own = tensors[n].shape[labels.indexOf(label)]
      if (own !== size) {
        throw fail(
          equation,
          `index ${label} must have the same size throughout a tensor`,
          `${own} and ${size} in ${formatShape(tensors[n].shape)}`,
          'A diagonal needs two equal axes.',
        )
      }
      if (known && known.size !== size && size !== 1 && known.size !== 1) {
        throw fail(
          equation,
          `index ${label} must have the same size in all tensors, or 1`,
          `${known.size} in ${formatShape(known.tensor.shape)} and ${size} in ${formatShape(tensors[n].shape)}`,
          'Check the order of the letters.',
        )
      }
      if (!known || known.size === 1) sizes.set(label, { size, tensor: tensors[n] })
    })
  })
  for (const label of output) {
    if (!sizes.has(label)) {
      throw fail(
        equation,
        `index ${label} of the result must occur in an operand`,
        `operands ${inputs.map((labels) => labels.join('')).join(', ')}`,
        'Remove it from the result.',
      )
    }
  }
  const operands = inputs.map((labels, n) => withoutRepeats({ tensor: tensors[n], labels }))
  const joined = operands.reduce((left, right, n) => {
    const wanted = new Set([...output, ...operands.slice(n + 1).flatMap(({ labels }) => labels)])
    return join(left, right, wanted)
  })
  const summed = sumOthers(joined, new Set(output))
  return arrange(summed, output)
}

/** Letters by operand and of the result; axes of an ellipsis are called ".0" (the last), ".1", ... */
function parse(equation: string, tensors: readonly Tensor[]) {
  const text = equation.replaceAll(' ', '')
  const [left, right, ...more] = text.split('->')
  const terms = left.split(',')
  if (more.length > 0 || terms.length !== tensors.length) {
    throw fail(
      equation,
      `expected letters for each of ${tensors.length} tensors`,
      `${terms.length} terms`,
      'Separate terms with commas, and the result with "->".',
    )
  }
  const read = (term: string, rank: number | undefined): string[] => {
    const match = /^([A-Za-z]*)(\.\.\.)?([A-Za-z]*)$/.exec(term)
    if (!match) {
      throw fail(
        equation,
        'expected letters and at most one "..." in a term',
        `"${clipped(term)}"`,
        'Use one letter per axis.',
      )
    }
    const [, before, ellipsis, after] = match
    const letters = before.length + after.length
    if (rank !== undefined && (ellipsis ? rank < letters : rank !== letters)) {
      throw fail(
        equation,
        `"${clipped(term)}" must name the ${rank} dimensions of its tensor`,
        `${letters} letters`,
        'Use one letter per axis.',
      )
    }
    const hidden = ellipsis ? (rank === undefined ? maxHidden : rank - letters) : 0
    const dots = Array.from({ length: hidden }, (_, n) => `.${hidden - 1 - n}`)
    return [...before, ...dots, ...after]
  }
  let maxHidden = 0
  const inputs = terms.map((term, n) => {
    const labels = read(term, tensors[n].shape.length)
    maxHidden = Math.max(maxHidden, labels.filter((label) => label.startsWith('.')).length)
    return labels
  })
  if (right !== undefined) {
    const output = read(right, undefined)
    const twice = output.find((label, n) => output.indexOf(label) !== n)
    if (twice) {
      throw fail(
        equation,
        `index ${twice} may occur only once in the result`,
        `"${clipped(right)}"`,
        'Remove one.',
      )
    }
    return { inputs, output }
  }
  const all = inputs.flat()
  const letters = [...new Set(all)]
    .filter(
      (label) => !label.startsWith('.') && all.filter((other) => other === label).length === 1,
    )
    .sort()
  const dots = Array.from({ length: maxHidden }, (_, n) => `.${maxHidden - 1 - n}`)
  return { inputs, output: [...dots, ...letters] }
}

/** The diagonal over axes that share a letter. */
function withoutRepeats(operand: Labelled): Labelled {
  const { tensor, labels } = operand
  const twice = labels.findIndex((label, n) => labels.indexOf(label) !== n)
  if (twice < 0) return operand
  const first = labels.indexOf(labels[twice])
  const rest = labels.map((_, axis) => axis).filter((axis) => axis !== first && axis !== twice)
  const size = tensor.shape[first]
  const moved = tensor.permute([...rest, first, twice])
  const lead = moved.shape.slice(0, -2)
  // Elements n * size + n of each square.
  const diagonal = moved.reshape([...lead, size * size]).slice(-1, 0, size * size, size + 1)
  return withoutRepeats({
    tensor: diagonal,
    labels: [...rest.map((axis) => labels[axis]), labels[first]],
  })
}

/** Sums the axes that nobody wants. */
function sumOthers({ tensor, labels }: Labelled, wanted: ReadonlySet<string>): Labelled {
  const axes = labels.flatMap((label, axis) => (wanted.has(label) ? [] : [axis]))
  return axes.length === 0
    ? { tensor, labels }
    : { tensor: tensor.sum(axes), labels: labels.filter((label) => wanted.has(label)) }
}

/** The axes in the order `labels`, with axes of size 1 for those that the operand does not have. */
function arrange({ tensor, labels: own }: Labelled, labels: readonly string[]): Tensor {
  const present = labels.filter((label) => own.includes(label))
  const ordered = tensor.permute(present.map((label) => own.indexOf(label)))
  return present.length === labels.length
    ? ordered
    : ordered.reshape(
        labels.map((label) => (own.includes(label) ? tensor.shape[own.indexOf(label)] : 1)),
      )
}

/** The product of two operands, summed over what nobody else wants. */
function join(a: Labelled, b: Labelled, wanted: ReadonlySet<string>): Labelled {
  const left = sumOthers(a, new Set([...wanted, ...b.labels]))
  const right = sumOthers(b, new Set([...wanted, ...a.labels]))
  const sizeOf = ({ tensor, labels }: Labelled, label: string) =>
    tensor.shape[labels.indexOf(label)]
  const both = left.labels.filter((label) => right.labels.includes(label))
  // An axis that is 1 on one side alone broadcasts, so it is no contraction.
  const isContracted = (label: string) =>
    !wanted.has(label) && sizeOf(left, label) === sizeOf(right, label)
  const contracted = both.filter(isContracted)
  if (contracted.length === 0) {
    const labels = [...left.labels, ...right.labels.filter((label) => !left.labels.includes(label))]
    return sumOthers({ tensor: arrange(left, labels).mul(arrange(right, labels)), labels }, wanted)
  }
  const batch = both.filter((label) => !isContracted(label))
  const rows = left.labels.filter((label) => !both.includes(label))
  const columns = right.labels.filter((label) => !both.includes(label))
  const product = form(left, batch, rows, contracted).matmul(
    form(right, batch, contracted, columns),
  )
  const labels = [...batch, ...rows, ...columns]
  const sizes = [
    ...product.shape.slice(0, batch.length),
    ...rows.map((label) => sizeOf(left, label)),
    ...columns.map((label) => sizeOf(right, label)),
  ]
  return sumOthers({ tensor: product.reshape(sizes), labels }, wanted)
}

/** Axes as [batch.., first, second], the two groups joined into one axis each. */
function form(
  operand: Labelled,
  batch: readonly string[],
  first: readonly string[],
  second: readonly string[],
): Tensor {
  const arranged = arrange(operand, [...batch, ...first, ...second])
  const { shape } = arranged
  const product = (sizes: readonly number[]) => sizes.reduce((all, size) => all * size, 1)
  const middle = batch.length + first.length
  return arranged.reshape([
    ...shape.slice(0, batch.length),
    product(shape.slice(batch.length, middle)),
    product(shape.slice(middle)),
  ])
}
