import type { Lowering } from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { broadcastIndex, stepsToWgsl } from '../steps.ts'
import { describeProblem, indent, type MatmulProblem, outputBindings } from './generate.ts'

const workgroupSize = 64

/** One invocation for each element of c, then one for each row sum: `element` computes either from its index. */
function elementKernel(
  problem: MatmulProblem,
  label: string,
  bindings: Parameters<typeof dispatch>[0]['bindings'],
  accumulate: readonly string[],
  accumulateSum: readonly string[],
) {
  const { m, n, epilogue, operandShapes, rowSums } = problem
  const count = m * n + (rowSums ? m : 0)
  const groups = linearGroups(ceilDiv(count, workgroupSize))
  const finish = stepsToWgsl(epilogue, [
    'total',
    ...operandShapes.map((shape, i) => `e${i}[${broadcastIndex([m, n], shape, ['row', 'col'])}]`),
  ])
  const element = [
    `let row = i / ${n}u;`,
    `let col = i % ${n}u;`,
    'var total = 0.0;',
    ...accumulate,
    ...finish.lines,
    `c[i] = ${finish.result};`,
  ]
  const body = [
    `// c = a b, ${describeProblem(problem)}. One invocation makes one element; those past the end write nothing.`,
    `@compute @workgroup_size(${workgroupSize})`,
    'fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {',
    ...indent([
      `let i = (group.y * ${groups[0]}u + group.x) * ${workgroupSize}u + lane;`,
      `if (i >= ${count}u) { return; }`,
      ...(m * n === 0
        ? []
        : rowSums
          ? [`if (i < ${m * n}u) {`, ...indent([...element, 'return;']), '}']
          : element),
      ...(rowSums
        ? [
            `let row = i - ${m * n}u;`,
            'var total = 0.0;',
            ...accumulateSum,
            'row_sums[row] = total;',
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
  const { form, m, k, n, rowSums } = problem
  if (m * n === 0 && !(rowSums && m > 0)) return { dispatches: [] }
  const a = form === 'tn' ? `a[k * ${m}u + row]` : `a[row * ${k}u + k]`
  const b = form === 'nt' ? `b[col * ${k}u + k]` : `b[k * ${n}u + col]`
  const loop = (term: string) =>
    k === 0 ? [] : [`for (var k = 0u; k < ${k}u; k++) { total += ${term}; }`]
  const bindings = [reads('a', { in: 0 }), reads('b', { in: 1 }), ...outputBindings(problem, false)]
  return {
    dispatches: [
      elementKernel(
        problem,
        `matmul ${describeProblem(problem)} naive`,
        bindings,
        loop(`${a} * ${b}`),
        loop(a),
      ),
    ],
  }
}

/** The second pass of split-K: adds the slices in order and applies the epilogue. Scratch 0: [slices, M, N], 1: [slices, M]. */
export function sumSlicesKernel(problem: MatmulProblem, slices: number) {
  const { m, n, rowSums } = problem
  const bindings = [
    reads('partial_c', { scratch: 0 }),
    ...(rowSums ? [reads('partial_sums', { scratch: 1 })] : []),
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
    loop(`partial_c[slice * ${m * n}u + i]`),
    loop(`partial_sums[slice * ${m}u + row]`),
  )
}
