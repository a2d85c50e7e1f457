import { epilogueOf } from '../conv2d/epilogue.ts'
import { eachElement, eachFloat } from '../elements.ts'
import { floatElement } from '../half-bindings.ts'
import type { Dispatch, OpCall } from '../op.ts'
import { ceilDiv, reads, writes } from '../shader.ts'
import type { Step } from '../steps.ts'
import type { PoolSizes } from './max-pool2d.ref.ts'

const range = (length: number) => Array.from({ length }, (_, i) => i)
const u32 = (value: number) => `${value >>> 0}u`

/** Window pixels beyond this make long shaders: such windows loop in `naive`. */
export const maxUnrolled = 64

/** Windows that a pixel can lie in, along one axis. */
const windowsPerPixel = (kernel: number, stride: number) => ceilDiv(kernel, stride)

/** Products of pixel and window that the gradient spells out. */
export const gradTerms = ({ KH, KW, SH, SW }: PoolSizes): number =>
  SH * SW * windowsPerPixel(KH, SH) * windowsPerPixel(KW, SW)

/**
 * Returns the dispatch of max pooling with the window spelled out.
 *
 * Who does what: one invocation computes one output; same rules for ties and NaN as max-pool2d.wgsl, bit for bit.
 * Where all windows lie inside, no pixel is checked; else the search starts from the first pixel inside.
 * Why so: on SwiftShader a loop that lanes leave at different times costs several times the loads in it.
 */
export function unrolledPool(sizes: PoolSizes, call: OpCall<unknown>): Dispatch[] {
  const { H, W, OH, OW, KH, KW, SH, SW, PH, PW } = sizes
  const [x] = call.inputs
  const [output] = call.outputs
  const lines: string[] = []
  const hangsOver = (OH - 1) * SH + KH > H || (OW - 1) * SW + KW > W
  const isPadded = PH > 0 || PW > 0 || hangsOver
  for (const ky of range(KH)) {
    for (const kx of range(KW)) {
      if (!isPadded && ky === 0 && kx === 0) continue
      const inside = isPadded ? `(top + ${ky}u < ${H}u) & (left + ${kx}u < ${W}u) & ` : ''
      lines.push(
        '  {',
        `    let here = first + ${ky * W + kx}u;`,
        '    let value = x[plane + here];',
        '    let isNan = is_nan(value);',
        `    let wins = ${inside}(isNan | (!bestIsNan & (value > best)));`,
        '    best = select(best, value, wins);',
        '    winner = select(winner, here, wins);',
        `    bestIsNan = bestIsNan | ${isPadded ? '(wins & isNan)' : 'isNan'};`,
        '  }',
      )
    }
  }
  const functions = [
    'fn element(at: u32) -> f32 {',
    `  let row = at / ${OW}u;`,
    `  let image = row / ${OH}u;`,
    `  let top = (row - image * ${OH}u) * ${SH}u + ${u32(-PH)};`,
    `  let left = (at - row * ${OW}u) * ${SW}u + ${u32(-PW)};`,
    `  let plane = image * ${H * W}u;`,
    `  let first = top * ${W}u + left;`,
    isPadded
      ? `  var winner = select(top, 0u, top >= ${H}u) * ${W}u + select(left, 0u, left >= ${W}u);`
      : '  var winner = first;',
    '  var best = x[plane + winner];',
    '  var bestIsNan = is_nan(best);',
    ...lines,
    '  index[at] = i32(winner);',
    '  return best;',
    '}',
  ].join('\n')
  return eachFloat({
    label: `maxPool2d ${KH}x${KW} ${x.shape.join('x')}`,
    bindings: [reads('x', { in: 0 }, floatElement(x)), writes('index', { out: 1 }, 'i32')],
    output: { name: 'y', type: output },
    functions,
  })
}

/** Returns whether the pixels of a block's row make whole words of f16. */
export const blocksMakeWords = ({ W, SW, PW }: PoolSizes): boolean =>
  [W, SW, PW].every((size) => size % 2 === 0)

/**
 * Returns the dispatch of the gradient by blocks of pixels.
 *
 * Who does what: one invocation computes the SH x SW pixels where a window starts. All of them lie in the same few windows (one,
 * where windows do not overlap), whose dy and index it loads once.
 * Numerics: f32, windows in row-major order as in max-pool2d-grad.wgsl, bit for bit.
 */
export function blockPoolGrad(
  sizes: PoolSizes,
  steps: readonly Step[],
  call: OpCall<unknown>,
): Dispatch[] {
  const { planes, H, W, OH, OW, KH, KW, SH, SW, PH, PW } = sizes
  const [dx] = call.outputs
  const isHalf = dx.dtype === 'f16'
  const C = dx.shape[1]
  const epilogue = epilogueOf(steps, call.inputs, 2, dx)
  const blocksY = ceilDiv(H + PH, SH)
  const blocksX = ceilDiv(W + PW, SW)
  const count = planes * blocksY * blocksX
  const lines: string[] = []
  const put = (line: string) => lines.push(line)
  // Block (by, bx) holds the pixels by*SH - PH + r, bx*SW - PW + s. Pixel row r lies in window rows by - j with j*SH + r < KH.
  const windowRows = range(windowsPerPixel(KH, SH)).reverse()
  const windowColumns = range(windowsPerPixel(KW, SW)).reverse()
  for (const j of windowRows) {
    for (const k of windowColumns) {
      const checks = [
        ...(j > 0 || blocksY > OH ? [`(by - ${j}u < ${OH}u)`] : []),
        ...(k > 0 || blocksX > OW ? [`(bx - ${k}u < ${OW}u)`] : []),
      ]
      put(`let window${j}_${k} = (image * ${OH}u + by - ${j}u) * ${OW}u + bx - ${k}u;`)
      put(`let dy${j}_${k} = dy[window${j}_${k}];`)
      const load = `index[window${j}_${k}]`
      put(
        `let index${j}_${k} = ${checks.length === 0 ? load : `select(-1, ${load}, ${checks.join(' & ')})`};`,
      )
    }
  }
  if (isHalf) put('var held = 0.0;')
  for (const r of range(SH)) {
    for (const s of range(SW)) {
      const checks = [
        ...(r < PH || (blocksY - 1) * SH - PH + r >= H ? [`(y0 + ${r}u < ${H}u)`] : []),
        ...(s < PW || (blocksX - 1) * SW - PW + s >= W ? [`(x0 + ${s}u < ${W}u)`] : []),
      ]
      put(checks.length === 0 ? '{' : `if (${checks.join(' & ')}) {`)
      put(`  let y = y0 + ${r}u;`)
      put(`  let x = x0 + ${s}u;`)
      put(`  let here = i32(y * ${W}u + x);`)
      const terms = windowRows
        .filter((j) => j * SH + r < KH)
        .flatMap((j) =>
          windowColumns
            .filter((k) => k * SW + s < KW)
            .map((k) => `select(0.0, dy${j}_${k}, index${j}_${k} == here)`),
        )
      put(`  let sum = ${terms.length > 0 ? terms.join(' + ') : '0.0'};`)
      const operands = call.inputs.slice(2).map((_, k) => epilogue.operandAt(k, 'n', 'c', 'y', 'x'))
      const { lines: chain, result } = epilogue.inline('sum', operands, 's')
      for (const line of chain) put(`  ${line}`)
      const at = `image * ${H * W}u + u32(here)`
      if (!isHalf) put(`  dx[${at}] = ${result};`)
      else if (s % 2 === 0) put(`  held = ${result};`)
      else put(`  dx[(${at}) >> 1u] = pack_half(held, ${result});`)
      put('}')
    }
  }
  return eachElement({
    label: `maxPool2dGrad ${KH}x${KW} ${dx.shape.join('x')}`,
    count,
    bindings: [
      reads('dy', { in: 0 }, floatElement(call.inputs[0])),
      reads('index', { in: 1 }, 'i32'),
      ...epilogue.bindings,
      writes('dx', { out: 0 }, floatElement(dx)),
    ],
    main: [
      `let row = i / ${blocksX}u;`,
      `let bx = i - row * ${blocksX}u;`,
      `let image = row / ${blocksY}u;`,
      `let by = row - image * ${blocksY}u;`,
      `let n = image / ${C}u;`,
      `let c = image - n * ${C}u;`,
      `let y0 = by * ${SH}u + ${u32(-PH)};`,
      `let x0 = bx * ${SW}u + ${u32(-PW)};`,
      ...lines,
    ],
  })
}
