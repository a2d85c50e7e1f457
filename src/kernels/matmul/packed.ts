import { tensorType } from '../../util/shape.ts'
import { ceilDiv, dispatch, reads, writes } from '../shader.ts'
import {
  batchStarts,
  describeProblem,
  indent,
  range,
  readSide,
  type Side,
  sideElement,
  sideLoads,
  sideOf,
  sideStarts,
} from './generate.ts'
import { batchCount, type MatmulProblem } from './problem.ts'

// Panels: of each tile the rows of a, or the columns of b, by k. A tile reads them in the order of their addresses. Where they lie in the operands,
// they are often a power of two apart, and share a few lines of the CPU's cache.

/** Steps of k that one invocation packs, and invocations of a workgroup. */
const [packedSteps, workgroupSize] = [64, 8]

const panelsOf = ({ size, count }: Side): number => ceilDiv(size, count)

/** A side that is read from panels. */
export const inPanels = (side: Side): Side => ({
  ...side,
  isAlongK: false,
  isWide: !side.isSpread,
  isHalf: false,
  lead: side.count,
})

/** `let a_at0 = ...`: where a tile's rows of the side begin. */
export function panelStarts(problem: MatmulProblem, side: Side): string[] {
  const { name, count, isWide } = side
  const tile = name === 'a' ? 'tile_m' : 'tile_n'
  const panel = problem.batch.length > 0 ? `(batch * ${panelsOf(side)}u + ${tile})` : tile
  const per = isWide ? 4 : 1
  return range(count / per).map(
    (i) => `let ${name}_at${i} = ${panel} * ${(problem.k * count) / per}u + ${i}u;`,
  )
}

/** `index`: of the scratch tensor. */
export const readPanels = ({ name, isWide }: Side, index: number) =>
  reads(name, { scratch: index }, isWide ? 'vec4<f32>' : 'f32')

/** Puts a side into panels, and repeats its last rows past the edge. `index`: of the scratch tensor. */
export function packKernel(problem: MatmulProblem, { name, count }: Side, index: number) {
  const { k } = problem
  const side = sideOf(problem, name, count)
  const panels = panelsOf(side)
  const products = batchCount(problem)
  const isBatched = problem.batch.length > 0
  const panel = isBatched ? `(batch * ${panels}u + at.x)` : 'at.x'
  const steps = side.isAlongK && side.isWide ? 4 : 1
  const stores = range(steps).flatMap((j) =>
    range(count / 4).map((g) => {
      const elements = range(4).map((i) => sideElement(side, 4 * g + i, j))
      const isLoaded = side.isWide && !side.isAlongK
      const value = isLoaded ? `${name}${g}_${j}` : `vec4<f32>(${elements.join(', ')})`
      return `panels[(${panel} * ${k}u + k + ${j}u) * ${count / 4}u + ${g}u] = ${value};`
    }),
  )
  const body = [
    `// Panels of ${count} ${name === 'a' ? 'rows of a' : 'columns of b'}, ${describeProblem(problem)}.`,
    `@compute @workgroup_size(${workgroupSize})`,
    'fn main(@builtin(global_invocation_id) at: vec3<u32>) {',
    ...indent([
      `if (at.x >= ${panels}u) { return; }`,
      ...(isBatched ? ['let batch = at.z;'] : []),
      `let ${name === 'a' ? 'row' : 'col'} = at.x * ${count}u;`,
      ...batchStarts(problem, [side], false),
      ...sideStarts(side),
      `let end = min((at.y + 1u) * ${packedSteps}u, ${k}u);`,
      `for (var k = at.y * ${packedSteps}u; k < end; k += ${steps}u) {`,
      ...indent([...sideLoads(side, steps, 'k'), ...stores]),
      '}',
    ]),
    '}',
    '',
  ].join('\n')
  return {
    dispatch: dispatch({
      label: `matmul ${describeProblem(problem)} panels of ${name}`,
      bindings: [readSide(side), writes('panels', { scratch: index }, 'vec4<f32>')],
      body,
      groups: [ceilDiv(panels, workgroupSize), ceilDiv(k, packedSteps), products],
    }),
    scratch: tensorType([products, panels, k, count]),
  }
}
