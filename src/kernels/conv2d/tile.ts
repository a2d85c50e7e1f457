import type { TensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { floatElement } from '../half-bindings.ts'
import type { Dispatch, OpCall, Variant } from '../op.ts'
import { ceilDiv, floatAt, readsFloats, writes } from '../shader.ts'
import type { Step } from '../steps.ts'
import { epilogueOf } from './epilogue.ts'
import { stripWidth } from './geometry.ts'

/** What one invocation computes: a block of output channels by output rows by output columns. */
export interface Tile {
  readonly channels: number
  readonly rows: number
  readonly columns: number
}

/**
 * A convolution as the generator sees it: `out[n,o,oy,ox] = sum over c, ky, kx of image[n, c, oy*SH + ky*DH - PH, ox*SW + kx*DW - PW]
 * * w[o * outStride + c * inStride + tap(ky, kx)]`. The gradient by the input is one or several of these, with the kernel
 * turned round; its padding can be negative. With groups, o and c count within their group g, whose weights begin at g * groupStride;
 * channel counts are those of one group.
 */
export interface TiledConv {
  readonly label: string
  readonly batch: number
  readonly groups: number
  readonly inChannels: number
  readonly inRows: number
  readonly inColumns: number
  readonly outChannels: number
  readonly outRows: number
  readonly outColumns: number
  readonly kernel: readonly [number, number]
  readonly stride: readonly [number, number]
  readonly padding: readonly [number, number]
  readonly dilation: readonly [number, number]
  readonly weights: {
    groupStride: number
    outStride: number
    inStride: number
    tap(ky: number, kx: number): number
  }
  /** Where output row r, column s goes: row `r * stride[0] + offset[0]`, column `s * stride[1] + offset[1]`, of the tensor's planes. */
  readonly output: { stride: readonly [number, number]; offset: readonly [number, number] }
  readonly epilogue: readonly Step[]
  /** True if the output is f16, two neighbours to a word: columns are then even, and dispatches make whole rows. */
  readonly isHalf: boolean
}

/** Multiply-adds that the inner loop of a tile spells out; bounds the shader's length and so its compile time. */
const tileTerms = (tile: Tile, kernel: readonly [number, number]): number =>
  tile.channels * tile.rows * tile.columns * kernel[0] * kernel[1]

const u32 = (value: number) => `${value >>> 0}u`

/**
 * Returns the dispatches of a register-tiled direct convolution; inputs are the image and the weights, in this order.
 *
 * Who does what: one invocation computes `tile`; neighbours take the next tile of the row, then the next rows, channels and
 * images. For each input channel it loads its patch of the image once, then for each output channel the KH*KW weights, and
 * adds all taps of an accumulator in one expression. No workgroup memory.
 * Numerics: f32; taps of one input channel are summed row by row, then added to the accumulator; channels in order.
 * Why so: on SwiftShader a load costs as much as about 20 multiply-adds, and writing a variable more than the multiply-add, so the
 * tile is wide and its accumulators are written once per channel. Pixels that can lie outside for no tile are not checked.
 * source: direct convolution with register blocking, as in tfjs PR #1710; the bigger tile and the static border test are ours.
 */
export function tiledConv<A>(conv: TiledConv, tile: Tile, call: OpCall<A>): Dispatch[] {
  const { batch, groups: groupCount, inChannels, inRows, inColumns } = conv
  const { outChannels, outRows, outColumns } = conv
  const [KH, KW] = conv.kernel
  const [SH, SW] = conv.stride
  const [PH, PW] = conv.padding
  const [DH, DW] = conv.dilation
  const output: TensorType = call.outputs[0]
  if (batch === 0) return []
  const epilogue = epilogueOf(conv.epilogue, call.inputs, 2, output)
  const tilesX = ceilDiv(outColumns, tile.columns)
  const tilesY = ceilDiv(outRows, tile.rows)
  const tilesO = ceilDiv(outChannels, tile.channels)
  const count = batch * groupCount * tilesO * tilesY * tilesX
  const { groupStride, outStride, inStride, tap } = conv.weights

  // Which patch rows and columns are inside the image for every tile, for none, or for some.
  const inside = (
    at: number,
    tiles: number,
    step: number,
    size: number,
  ): 'always' | 'never' | 'some' => {
    const low = at
    const high = (tiles - 1) * step + at
    if (low >= 0 && high < size) return 'always'
    return Array.from({ length: tiles }, (_, i) => i * step + at).every((p) => p < 0 || p >= size)
      ? 'never'
      : 'some'
  }
  /** Patch positions that some tap reads; with dilation not all are. */
  const read = (outputs: number, stride: number, taps: number, dilation: number) => {
    const positions = new Set<number>()
    for (let o = 0; o < outputs; o++)
      for (let k = 0; k < taps; k++) positions.add(o * stride + k * dilation)
    return [...positions].sort((a, b) => a - b)
  }
  const patchRows = read(tile.rows, SH, KH, DH)
  const patchColumns = read(tile.columns, SW, KW, DW)
  const rowInside = patchRows.reduce<string[]>((known, r) => {
    known[r] = inside(r - PH, tilesY, tile.rows * SH, inRows)
    return known
  }, [])
  const columnInside = patchColumns.reduce<string[]>((known, s) => {
    known[s] = inside(s - PW, tilesX, tile.columns * SW, inColumns)
    return known
  }, [])

  const head: string[] = []
  const put = (depth: number, line: string) => head.push(`${'  '.repeat(depth - 1)}${line}`)
  put(1, `let x0 = i % ${tilesX}u * ${tile.columns}u;`)
  put(1, `let y0 = i / ${tilesX}u % ${tilesY}u * ${tile.rows}u;`)
  put(1, `let c0 = i / ${tilesX * tilesY}u % ${tilesO}u * ${tile.channels}u;`)
  const tilesOfImage = tilesX * tilesY * tilesO * groupCount
  if (groupCount > 1) {
    put(1, `let g = i / ${tilesX * tilesY * tilesO}u % ${groupCount}u;`)
  }
  put(1, `let n = i / ${tilesOfImage}u;`)
  // Unsigned coordinates wrap above and left of the image, so that one comparison does for both ends.
  for (const r of patchRows) {
    if (rowInside[r] === 'some') put(1, `let row${r} = y0 * ${SH}u + ${u32(r - PH)} < ${inRows}u;`)
  }
  for (const s of patchColumns) {
    if (columnInside[s] === 'some')
      put(1, `let column${s} = x0 * ${SW}u + ${u32(s - PW)} < ${inColumns}u;`)
  }
  const image = groupCount > 1 ? `(n * ${groupCount}u + g)` : 'n'
  put(
    1,
    `var at = ${image} * ${inChannels * inRows * inColumns}u + (y0 * ${SH}u + ${u32(-PH)}) * ${inColumns}u + x0 * ${SW}u + ${u32(-PW)};`,
  )
  put(1, `var weight = ${groupCount > 1 ? `g * ${groupStride}u + ` : ''}c0 * ${outStride}u;`)
  const accumulator = (i: number, r: number, s: number) => `a${i}_${r}_${s}`
  const eachCell = (visit: (i: number, r: number, s: number) => void) => {
    for (let i = 0; i < tile.channels; i++)
      for (let r = 0; r < tile.rows; r++) for (let s = 0; s < tile.columns; s++) visit(i, r, s)
  }
  eachCell((i, r, s) => {
    put(1, `var ${accumulator(i, r, s)} = 0.0;`)
  })

  put(1, `for (var c = 0u; c < ${inChannels}u; c++) {`)
  for (const r of patchRows) {
    for (const s of patchColumns) {
      if (rowInside[r] === 'never' || columnInside[s] === 'never') continue
      const checks = [
        ...(rowInside[r] === 'some' ? [`row${r}`] : []),
        ...(columnInside[s] === 'some' ? [`column${s}`] : []),
      ]
      const load = floatAt('image', call.inputs[0], `at + ${r * inColumns + s}u`)
      put(
        2,
        `let p${r}_${s} = ${checks.length === 0 ? load : `select(0.0, ${load}, ${checks.join(' & ')})`};`,
      )
    }
  }
  for (let i = 0; i < tile.channels; i++) {
    put(2, '{')
    for (let ky = 0; ky < KH; ky++) {
      for (let kx = 0; kx < KW; kx++) {
        const load = floatAt('w', call.inputs[1], `weight + ${i * outStride + tap(ky, kx)}u`)
        put(3, `let w${ky}_${kx} = ${load};`)
      }
    }
    for (let r = 0; r < tile.rows; r++) {
      for (let s = 0; s < tile.columns; s++) {
        const rows: string[] = []
        for (let ky = 0; ky < KH; ky++) {
          const terms: string[] = []
          for (let kx = 0; kx < KW; kx++) {
            const [pr, ps] = [r * SH + ky * DH, s * SW + kx * DW]
            if (rowInside[pr] !== 'never' && columnInside[ps] !== 'never')
              terms.push(`p${pr}_${ps} * w${ky}_${kx}`)
          }
          if (terms.length > 0) rows.push(`(${terms.join(' + ')})`)
        }
        const name = accumulator(i, r, s)
        if (rows.length > 0) put(3, `${name} += ${rows.join(' + ')};`)
      }
    }
    put(2, '}')
  }
  put(2, `at += ${inRows * inColumns}u;`)
  put(2, `weight += ${inStride}u;`)
  put(1, '}')

  const [, , planeRows, planeColumns] = output.shape
  const place = (start: string, step: number, axis: 0 | 1) => {
    const [stride, offset] = [conv.output.stride[axis], conv.output.offset[axis]]
    return stride === 1
      ? `${start} + ${step + offset}u`
      : `(${start} + ${step}u) * ${stride}u + ${offset}u`
  }
  const tailO = outChannels % tile.channels !== 0
  const tailY = outRows % tile.rows !== 0
  const tailX = outColumns % tile.columns !== 0
  for (let i = 0; i < tile.channels; i++) {
    put(1, tailO && i > 0 ? `if (c0 + ${i}u < ${outChannels}u) {` : '{')
    put(2, `let c = ${groupCount > 1 ? `g * ${outChannels}u + ` : ''}c0 + ${i}u;`)
    const operandCount = call.inputs.length - 2
    // An operand that is the same all over a plane, such as a bias, is loaded once per channel.
    for (let k = 0; k < operandCount; k++) {
      if (!epilogue.variesInPlane(k))
        put(2, `let b${k} = ${epilogue.operandAt(k, 'n', 'c', '0u', '0u')};`)
    }
    put(2, `let plane = (n * ${groupCount * outChannels}u + c) * ${planeRows * planeColumns}u;`)
    for (let r = 0; r < tile.rows; r++) {
      put(2, tailY && r > 0 ? `if (y0 + ${r}u < ${outRows}u) {` : '{')
      put(3, `let y = ${place('y0', r, 0)};`)
      if (conv.isHalf) put(3, 'var even = 0.0;')
      for (let s = 0; s < tile.columns; s++) {
        put(3, tailX && s > 0 ? `if (x0 + ${s}u < ${outColumns}u) {` : '{')
        put(4, `let x = ${place('x0', s, 1)};`)
        const values = Array.from({ length: operandCount }, (_, k) =>
          epilogue.variesInPlane(k) ? epilogue.operandAt(k, 'n', 'c', 'y', 'x') : `b${k}`,
        )
        const { lines, result } = epilogue.inline(accumulator(i, r, s), values, 's')
        for (const line of lines) put(4, line)
        const at = `plane + y * ${planeColumns}u + x`
        if (!conv.isHalf) put(4, `out[${at}] = ${result};`)
        else if (s % 2 === 0) put(4, `even = ${result};`)
        else put(4, `out[(${at}) >> 1u] = pack_half(even, ${result});`)
        put(3, '}')
      }
      put(2, '}')
    }
    put(1, '}')
  }

  return eachElement({
    label: conv.label,
    count,
    bindings: [
      readsFloats('image', { in: 0 }, call.inputs[0]),
      readsFloats('w', { in: 1 }, call.inputs[1]),
      ...epilogue.bindings,
      writes('out', { out: 0 }, floatElement(output)),
    ],
    main: head,
  })
}

/** Estimated time of a tile, in multiply-adds on SwiftShader: measured, a load or store costs as much as about 20. */
function tileCost(conv: TiledConv, tile: Tile): number {
  const [KH, KW] = conv.kernel
  const patch = ((tile.rows - 1) * conv.stride[0] + KH) * ((tile.columns - 1) * conv.stride[1] + KW)
  const memory = patch + tile.channels * KH * KW
  const perChannel = 20 * memory + tileTerms(tile, conv.kernel)
  const stores = 25 * tile.channels * tile.rows * tile.columns
  const invocations =
    conv.groups *
    ceilDiv(conv.outChannels, tile.channels) *
    ceilDiv(conv.outRows, tile.rows) *
    ceilDiv(conv.outColumns, tile.columns)
  return invocations * (conv.inChannels * perChannel + stores)
}

/** Channels of a tile: no more than a group has, where there are groups. */
const atMost = (channels: number, { groups, outChannels }: TiledConv) =>
  groups === 1 ? channels : Math.min(channels, outChannels)

/** The menu. `strip` takes as many columns as suit the image. */
const menu: Readonly<Record<string, (conv: TiledConv) => Tile>> = {
  tile4x2x2: (conv) => ({ channels: atMost(4, conv), rows: 2, columns: 2 }),
  tile4x4x4: (conv) => ({ channels: atMost(4, conv), rows: 4, columns: 4 }),
  strip8x2: (conv) => ({
    channels: atMost(8, conv),
    rows: 2,
    columns: stripWidth(conv.outColumns, conv.isHalf),
  }),
}

/** A shader longer than this takes seconds to compile. */
const maxTerms = 1200

const fits = (convs: readonly TiledConv[], tile: (conv: TiledConv) => Tile) =>
  convs.every(
    (conv) =>
      tileTerms(tile(conv), conv.kernel) <= maxTerms &&
      (!conv.isHalf || tile(conv).columns % 2 === 0),
  )

/** The tiled variants of an op, for calls that `describe` as convolutions which together write every output. */
export function tiledVariants<A>(describe: (call: OpCall<A>) => TiledConv[]): Variant<A>[] {
  return Object.entries(menu).map(([name, tile]) => ({
    name,
    when: (call) => fits(describe(call), tile),
    lower: (call) => ({
      dispatches: describe(call).flatMap((conv) => tiledConv(conv, tile(conv), call)),
    }),
  }))
}

/** Tiles whose estimates differ by no more are equally fast, and the one with the shorter text compiles sooner (measured on SwiftShader). */
const asCheap = 1.1

/** The fixed table's choice: the shortest of the menu's cheapest tiles, or `naive`. */
export function preferredTile(convs: readonly TiledConv[]): string {
  const sum = (of: (conv: TiledConv) => number) =>
    convs.reduce((total, conv) => total + of(conv), 0)
  const candidates = Object.entries(menu)
    .filter(([, tile]) => fits(convs, tile))
    .map(([name, tile]) => ({
      name,
      cost: sum((conv) => tileCost(conv, tile(conv))),
      terms: sum((conv) => tileTerms(tile(conv), conv.kernel)),
    }))
  const min = Math.min(...candidates.map(({ cost }) => cost))
  const [best] = candidates
    .filter(({ cost }) => cost <= asCheap * min)
    .sort((a, b) => a.terms - b.terms)
  return best?.name ?? 'naive'
}
