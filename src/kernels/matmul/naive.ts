import type { Lowering } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { stepsToWgsl } from '../steps.ts'
import {
  batchStarts,
  describeProblem,
  indent,
  operandIndex,
  outputBindings,
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
  const { m, n, epilogue, operandShapes, layouts } = problem
  const sums = sumsOf(problem)
  const isBatched = problem.batch.length > 0
  const count = batchCount(problem) * m * n + (sums?.count ?? 0)
  const groups = linearGroups(ceilDiv(count, workgroupSize))
  const finish = stepsToWgsl(epilogue, [
    'total',
    ...operandShapes.map((shape, i) => `e${i}[${operandIndex(problem, shape, 'row', 'col')}]`),
  ])
  const element = [
    `let row = i / ${n}u${isBatched ? ` % ${m}u` : ''};`,
    `let col = i % ${n}u;`,
    ...(isBatched ? [`let batch = i / ${m * n}u;`, ...starts] : []),
    'var total = 0.0;',
    ...accumulate,
    ...finish.lines,
    isBatched
      ? `c[c_first + row * ${layouts.c.lead}u + col] = ${finish.result};`
      : `c[i] = ${finish.result};`,
  ]
  const body = [
    `// c = a b, ${describeProblem(problem)}. One invocation makes one element; those past the end write nothing.`,
    `@compute @workgroup_size(${workgroupSize})`,
    'fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {',
    ...indent([
      `let i = (group.y * ${groups[0]}u + group.x) * ${workgroupSize}u + lane;`,
      `if (i >= ${count}u) { return; }`,
      ...(isBatched ? [] : starts),
      ...(m * n === 0
        ? []
        : sums
          ? [`if (i < ${m * n}u) {`, ...indent([...element, 'return;']), '}']
          : element),
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
  const [a, b] = sides.map(({ name, first, isAlongK, lead }) => {
    const own = name === 'a' ? 'row' : 'col'
    const from = first === '' ? '' : `${first} + `
    return isAlongK
      ? `${name}[${from}${own} * ${lead}u + k]`
      : `${name}[${from}k * ${lead}u + ${own}]`
  })
  const loop = (term: string) =>
    k === 0 ? [] : [`for (var k = 0u; k < ${k}u; k++) { total += ${term}; }`]
  const bindings = [reads('a', { in: 0 }), reads('b', { in: 1 }), ...outputBindings(problem, false)]
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
      binding.access === 'write' ? writes(binding.name, binding.operand) : binding,
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
