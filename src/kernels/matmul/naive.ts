import type { Lowering } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { stepsToWgsl } from '../steps.ts'
import {
  batchStarts,
  describeProblem,
  indent,
  operandLoad,
  outputBindings,
  readSide,
  sideLoad,
  sideOf,
} from './generate.ts'
import { batchCount, type MatmulProblem, sumsOf } from './problem.ts'

const workgroupSize = 64

/** One invocation for each element of c, then one for each row sum: `element` computes either from its index. */
function elementKernel(
  problem: MatmulProblem,
  label: string,
  bindings: Parameters<typeof dispatch>[0]['bindings'],
  starts: readonly string[],
  accumulate: readonly string[],
  accumulateSum: readonly string[],
) {
  const { m, n, epilogue, operandShapes, layouts, halves } = problem
  const sums = sumsOf(problem)
  const isBatched = problem.batch.length > 0
  const per = halves.c ? 2 : 1
  const count = (batchCount(problem) * m * n) / per + (sums?.count ?? 0)
  const groups = linearGroups(ceilDiv(count, workgroupSize))
  const finish = stepsToWgsl(epilogue, [
    'total',
    ...operandShapes.map((_, i) => operandLoad(problem, i, 'row', 'col')),
  ])
  const element = [
    `let row = i / ${n}u${isBatched ? ` % ${m}u` : ''};`,
    `let col = i % ${n}u;`,
    ...(isBatched ? [`let batch = i / ${m * n}u;`, ...starts] : []),
    'var total = 0.0;',
    ...accumulate,
    ...finish.lines,
  ]
  const target = isBatched ? `c_first + row * ${layouts.c.lead}u + col` : 'i'
  // An invocation stores a whole word: two neighbours of a row where c is f16.
  const elements = halves.c
    ? [
        'var pair = vec2<f32>();',
        'var at = 0u;',
        ...[0, 1].flatMap((half) => [
          '{',
          ...indent([
            `let i = word * 2u + ${half}u;`,
            ...element,
            ...(half === 0 ? [`at = (${target}) / 2u;`] : []),
            `pair[${half}] = ${finish.result};`,
          ]),
          '}',
        ]),
        'c[at] = pack_half(pair.x, pair.y);',
      ]
    : [...element, `c[${target}] = ${finish.result};`]
  const index = halves.c ? 'word' : 'i'
  const body = [
    `// c = a b, ${describeProblem(problem)}. One invocation makes ${halves.c ? 'two elements' : 'one element'}; those past the end write nothing.`,
    `@compute @workgroup_size(${workgroupSize})`,
    'fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {',
    ...indent([
      `let ${index} = (group.y * ${groups[0]}u + group.x) * ${workgroupSize}u + lane;`,
      `if (${index} >= ${count}u) { return; }`,
      ...(isBatched ? [] : starts),
      ...(m * n === 0
        ? []
        : sums
          ? [`if (i < ${m * n}u) {`, ...indent([...elements, 'return;']), '}']
          : elements),
      ...(sums
        ? [
            `let ${sums.index} = i - ${m * n}u;`,
            'var total = 0.0;',
            ...accumulateSum,
            `${sums.variable}[${sums.index}] = total;`,
          ]
        : []),
    ]),
    '}',
    '',
  ].join('\n')
  return dispatch({ label, bindings, body, groups })
}

/** One invocation per element, no reuse: what every other variant is tested and timed against. */
export function naiveKernel(problem: MatmulProblem): Lowering {
  const { m, k, n } = problem
  const sums = sumsOf(problem)
  if (batchCount(problem) * m * n === 0 && !sums?.count) return { dispatches: [] }
  const sides = [sideOf(problem, 'a', 1, false), sideOf(problem, 'b', 1, false)]
  const [a, b] = sides.map((side) => {
    const { name, first, isAlongK, lead } = side
    const own = name === 'a' ? 'row' : 'col'
    const from = first === '' ? '' : `${first} + `
    return sideLoad(
      side,
      isAlongK ? `${from}${own} * ${lead}u + k` : `${from}k * ${lead}u + ${own}`,
    )
  })
  const loop = (term: string) =>
    k === 0 ? [] : [`for (var k = 0u; k < ${k}u; k++) { total += ${term}; }`]
  const bindings = [...sides.map(readSide), ...outputBindings(problem, false)]
  return {
    dispatches: [
      elementKernel(
        problem,
        `matmul ${describeProblem(problem)} naive`,
        bindings,
        batchStarts(problem, sides),
        loop(`${a} * ${b}`),
        loop(sums?.of === 'b' ? b : a),
      ),
    ],
  }
}

/** The second pass of split-K: adds the slices in order and applies the epilogue. Scratch 0: [slices, batches, M, N], 1: the slices' sums. */
export function sumSlicesKernel(problem: MatmulProblem, slices: number) {
  const { m, n } = problem
  const sums = sumsOf(problem)
  const total = batchCount(problem) * m * n
  const bindings = [
    reads('partial_c', { scratch: 0 }),
    ...(sums ? [reads('partial_sums', { scratch: 1 })] : []),
    ...outputBindings(problem, false).map((binding) =>
      binding.access === 'write'
        ? writes(
            binding.name,
            binding.operand,
            binding.name === 'c' && problem.halves.c ? 'u32' : 'f32',
          )
        : binding,
    ),
  ]
  const loop = (term: string) => [
    `for (var slice = 0u; slice < ${slices}u; slice++) { total += ${term}; }`,
  ]
  return elementKernel(
    problem,
    `matmul ${describeProblem(problem)} sum of ${slices} slices`,
    bindings,
    batchStarts(problem, []),
    loop(`partial_c[slice * ${total}u + i]`),
    loop(`partial_sums[slice * ${sums?.count}u + ${sums?.index}]`),
  )
}
