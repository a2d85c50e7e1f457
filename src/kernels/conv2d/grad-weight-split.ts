import { tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import type { Lowering, OpCall } from '../op.ts'
import { ceilDiv, floatAt, reads, readsFloats, writes } from '../shader.ts'
import { type ConvGradWeightAttrs, type ConvSizes, stripWidth } from './geometry.ts'

/** What one invocation accumulates: KH*KW weights of `outputs` x `inputs` channel pairs. */
export interface WeightBlock {
  readonly outputs: number
  readonly inputs: number
}

/** Accumulators of a block. */
export const blockSize = (block: WeightBlock, { KH, KW }: Pick<ConvSizes, 'KH' | 'KW'>): number =>
  block.outputs * block.inputs * KH * KW

/** The block, no larger than a group where there are groups. */
const withinGroup = (block: WeightBlock, { G, CG, OG }: ConvSizes): WeightBlock =>
  G === 1 ? block : { outputs: Math.min(block.outputs, OG), inputs: Math.min(block.inputs, CG) }

/** One invocation adds up all partial sums of a weight, one after the other. */
const maxSplits = 256

const u32 = (value: number) => `${value >>> 0}u`

/**
 * Returns the two dispatches of the weight gradient: partial sums over parts of the batch and the image, then their sum.
 *
 * Who does what: one invocation accumulates a block of weights over a strip of columns of some images; neighbours take the next
 * block, so that they read the same rows. It walks down the rows of dy and keeps the last rows of x in named variables, so each
 * pixel is loaded once (with dilation, once a tap row). Row sums of dy are added up on the way, and stored by the blocks of a group's
 * input channel 0.
 * Strips: stripWidth wide. Parts: as many groups of images as give about `targetInvocations`.
 * Numerics: f32; a row of a strip is summed in one expression, rows in order, images in order; then parts in order.
 * A pixel past the right edge counts as dy = 0 and x as read, so an infinite x there gives NaN where the definition has no term.
 * source: the split over N*OH*OW is ours; TensorFlow.js (conv_backprop_webgpu.ts) loops over it in one thread per weight.
 */
export function splitGradWeight(
  sizes: ConvSizes,
  { inputs: [dy, x], attrs: { rowSums } }: OpCall<ConvGradWeightAttrs>,
  wanted: WeightBlock,
  targetInvocations: number,
): Lowering {
  const { N, C, H, W, O, KH, KW, OH, OW, SH, SW, PH, PW, DH, DW, G, CG, OG } = sizes
  const block = withinGroup(wanted, sizes)
  const columns = stripWidth(OW)
  const strips = ceilDiv(OW, columns)
  const blocksO = ceilDiv(OG, block.outputs)
  const blocksC = ceilDiv(CG, block.inputs)
  const blocks = G * blocksO * blocksC
  const wantedSplits = Math.min(maxSplits, targetInvocations / blocks)
  const wantedParts = Math.min(N, Math.max(1, Math.round(wantedSplits / strips)))
  const imagesPerPart = ceilDiv(N, wantedParts)
  const parts = ceilDiv(N, imagesPerPart)
  const splits = parts * strips
  const weightCount = O * CG * KH * KW
  const width = weightCount + (rowSums ? O : 0)
  const count = blocks * splits
  const patchColumns = (columns - 1) * SW + (KW - 1) * DW + 1
  /** Rows of x that stay for the next row of dy. */
  const kept = DH === 1 ? Math.max(0, KH - SH) : 0

  /** The first channel of the invocation's group, as a term. */
  const inGroup = (channels: number) => (G > 1 ? `g * ${channels}u + ` : '')

  const lines: string[] = []
  const put = (depth: number, line: string) => lines.push(`${'  '.repeat(depth - 1)}${line}`)
  const range = (length: number) => Array.from({ length }, (_, i) => i)
  const columnInside = range(patchColumns).map((s) => {
    const positions = range(strips).map((strip) => strip * columns * SW + s - PW)
    const isInside = (p: number) => p >= 0 && p < W
    const isRead = range(columns).some((o) => range(KW).some((kx) => o * SW + kx * DW === s))
    if (!isRead) return 'never'
    return positions.every(isInside) ? 'always' : positions.some(isInside) ? 'some' : 'never'
  })
  const dyInside = range(columns).map((s) => (strips - 1) * columns + s < OW)
  /** `image row` is an i32 expression of the row's number, `at` the flat index of its first column. */
  const loadRow = (depth: number, target: string, row: number, first: string, define: boolean) => {
    for (let j = 0; j < block.inputs; j++) {
      for (let s = 0; s < patchColumns; s++) {
        if (columnInside[s] === 'never') continue
        const load = floatAt('x', x, `at${j} + ${first} + ${s}u`)
        const isIn = columnInside[s] === 'some' ? `isIn${row} & column${s}` : `isIn${row}`
        put(
          depth,
          `${define ? 'let ' : ''}${target}${row}_${j}_${s} = select(0.0, ${load}, ${isIn});`,
        )
      }
    }
  }

  put(1, `let c0 = i % ${blocksC}u * ${block.inputs}u;`)
  put(1, `let o0 = i / ${blocksC}u % ${blocksO}u * ${block.outputs}u;`)
  if (G > 1) put(1, `let g = i / ${blocksC * blocksO}u % ${G}u;`)
  put(1, `let split = i / ${blocks}u;`)
  put(1, `let ox0 = split % ${strips}u * ${columns}u;`)
  put(1, `let n0 = split / ${strips}u * ${imagesPerPart}u;`)
  put(1, `let n1 = min(n0 + ${imagesPerPart}u, ${N}u);`)
  for (let s = 0; s < patchColumns; s++) {
    if (columnInside[s] === 'some') {
      put(1, `let column${s} = ox0 * ${SW}u + ${u32(s - PW)} < ${W}u;`)
    }
  }
  for (let s = 0; s < columns; s++) {
    if (!dyInside[s]) put(1, `let isDy${s} = ox0 + ${s}u < ${OW}u;`)
  }
  const accumulator = (i: number, j: number, ky: number, kx: number) => `a${i}_${j}_${ky}_${kx}`
  const eachWeight = (visit: (i: number, j: number, ky: number, kx: number) => void) => {
    for (let i = 0; i < block.outputs; i++)
      for (let j = 0; j < block.inputs; j++)
        for (let ky = 0; ky < KH; ky++) for (let kx = 0; kx < KW; kx++) visit(i, j, ky, kx)
  }
  eachWeight((i, j, ky, kx) => {
    put(1, `var ${accumulator(i, j, ky, kx)} = 0.0;`)
  })
  if (rowSums) for (let i = 0; i < block.outputs; i++) put(1, `var sum${i} = 0.0;`)
  for (let r = 0; r < kept; r++) {
    for (let j = 0; j < block.inputs; j++)
      for (let s = 0; s < patchColumns; s++)
        if (columnInside[s] !== 'never') put(1, `var k${r}_${j}_${s} = 0.0;`)
  }

  put(1, 'for (var n = n0; n < n1; n++) {')
  for (let j = 0; j < block.inputs; j++) {
    put(
      2,
      `let at${j} = (n * ${C}u + ${inGroup(CG)}c0 + ${j}u) * ${H * W}u + ox0 * ${SW}u + ${u32(-PW)};`,
    )
  }
  for (let i = 0; i < block.outputs; i++) {
    put(2, `let dyAt${i} = (n * ${O}u + ${inGroup(OG)}o0 + ${i}u) * ${OH * OW}u + ox0;`)
  }
  // The rows above the first window row that its successors share; the loop then loads the new ones.
  for (let r = 0; r < kept; r++) {
    put(2, '{')
    put(3, `let isIn${r} = ${u32(r - PH)} < ${H}u;`)
    loadRow(3, 'k', r, u32((r - PH) * W), false)
    put(2, '}')
  }
  put(2, `for (var oy = 0u; oy < ${OH}u; oy++) {`)
  for (let r = kept; r < KH; r++) {
    put(3, `let y${r} = oy * ${SH}u + ${u32(r * DH - PH)};`)
    put(3, `let isIn${r} = y${r} < ${H}u;`)
    put(3, `let first${r} = y${r} * ${W}u;`)
    loadRow(3, 'p', r, `first${r}`, true)
  }
  for (let r = 0; r < kept; r++) {
    for (let j = 0; j < block.inputs; j++)
      for (let s = 0; s < patchColumns; s++)
        if (columnInside[s] !== 'never') put(3, `let p${r}_${j}_${s} = k${r}_${j}_${s};`)
  }
  for (let i = 0; i < block.outputs; i++) {
    put(3, '{')
    for (let s = 0; s < columns; s++) {
      const load = floatAt('dy', dy, `dyAt${i} + oy * ${OW}u + ${s}u`)
      put(4, `let d${s} = ${dyInside[s] ? load : `select(0.0, ${load}, isDy${s})`};`)
    }
    if (rowSums)
      put(
        4,
        `sum${i} += ${range(columns)
          .map((s) => `d${s}`)
          .join(' + ')};`,
      )
    for (let j = 0; j < block.inputs; j++) {
      for (let ky = 0; ky < KH; ky++) {
        for (let kx = 0; kx < KW; kx++) {
          const terms = range(columns)
            .filter((s) => columnInside[s * SW + kx * DW] !== 'never')
            .map((s) => `d${s} * p${ky}_${j}_${s * SW + kx * DW}`)
          if (terms.length > 0) put(4, `${accumulator(i, j, ky, kx)} += ${balanced(terms)};`)
        }
      }
    }
    put(3, '}')
  }
  for (let r = 0; r < kept; r++) {
    for (let j = 0; j < block.inputs; j++)
      for (let s = 0; s < patchColumns; s++)
        if (columnInside[s] !== 'never') put(3, `k${r}_${j}_${s} = p${r + SH}_${j}_${s};`)
  }
  put(2, '}')
  put(1, '}')

  put(1, `let base = split * ${width}u;`)
  for (let i = 0; i < block.outputs; i++) {
    put(1, OG % block.outputs !== 0 && i > 0 ? `if (o0 + ${i}u < ${OG}u) {` : '{')
    for (let j = 0; j < block.inputs; j++) {
      put(2, CG % block.inputs !== 0 && j > 0 ? `if (c0 + ${j}u < ${CG}u) {` : '{')
      put(3, `let to = base + ((${inGroup(OG)}o0 + ${i}u) * ${CG}u + c0 + ${j}u) * ${KH * KW}u;`)
      for (let ky = 0; ky < KH; ky++)
        for (let kx = 0; kx < KW; kx++)
          put(3, `partial[to + ${ky * KW + kx}u] = ${accumulator(i, j, ky, kx)};`)
      put(2, '}')
    }
    if (rowSums) {
      put(
        2,
        `if (c0 == 0u) { partial[base + ${weightCount}u + ${inGroup(OG)}o0 + ${i}u] = sum${i}; }`,
      )
    }
    put(1, '}')
  }

  const label = `conv2dGradWeight ${C}->${O} ${KH}x${KW}`
  return {
    scratch: [tensorType([splits, width])],
    dispatches: [
      ...eachElement({
        label,
        count,
        bindings: [
          readsFloats('dy', { in: 0 }, dy),
          readsFloats('x', { in: 1 }, x),
          writes('partial', { scratch: 0 }),
        ],
        main: lines,
      }),
      ...eachElement({
        label: `${label} sum`,
        count: width,
        bindings: [
          reads('partial', { scratch: 0 }),
          writes('dw', { out: 0 }),
          ...(rowSums ? [writes('db', { out: 1 })] : []),
        ],
        main: [
          'var sum = 0.0;',
          `for (var s = 0u; s < ${splits}u; s++) { sum += partial[s * ${width}u + i]; }`,
          rowSums
            ? `if (i < ${weightCount}u) { dw[i] = sum; } else { db[i - ${weightCount}u] = sum; }`
            : 'dw[i] = sum;',
        ],
      }),
    ],
  }
}

/** A sum as a balanced tree of pairs. */
function balanced(terms: readonly string[]): string {
  if (terms.length === 1) return terms[0]
  const half = Math.ceil(terms.length / 2)
  return `(${balanced(terms.slice(0, half))} + ${balanced(terms.slice(half))})`
}
