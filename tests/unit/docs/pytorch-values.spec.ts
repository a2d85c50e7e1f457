import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import {
  pytorchValues,
  tracedFiles,
  withoutCounterpart,
} from '../../../scripts/docs/pytorch-values.ts'
import { ops } from '../../../src/kernels/index.ts'
import { attentionCases, programOfAttention } from '../../support/attention-calls.ts'
import { cornerCalls, cornerFiles } from '../../support/corner-calls.ts'
import { edgeCalls, edgeFiles } from '../../support/edge-calls.ts'
import { elementwiseCalls, elementwiseCases } from '../../support/elementwise-calls.ts'
import { type Call, type CallCase, programOfCall } from '../../support/golden-call.ts'
import { opCases, piecesOf } from '../../support/golden-pieces.ts'
import { type GoldenProgram, opsOf } from '../../support/golden-program.ts'
import { programOfShape, shapeCases } from '../../support/shape-calls.ts'

/** Every name and key that a file of tests/golden has. */
function namesIn(file: string): Set<string> {
  const names = new Set<string>()
  const walk = (value: unknown) => {
    if (typeof value !== 'object' || value === null) return
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'name' && typeof inner === 'string') names.add(inner)
      names.add(key)
      walk(inner)
    }
  }
  walk(JSON.parse(readFileSync(new URL(`../../golden/${file}.json`, import.meta.url), 'utf8')))
  return names
}

function caseIn<T extends { readonly name: string }>(cases: readonly T[], name: string): T {
  const found = cases.find((one) => one.name === name)
  if (!found) throw new Error(`no golden case is called ${name}`)
  return found
}

const programIn =
  <T extends { readonly name: string }>(
    cases: readonly T[],
    programOf: (golden: T) => GoldenProgram,
  ) =>
  (name: string) =>
    opsOf(programOf(caseIn(cases, name)))

const callIn = (cases: readonly CallCase[], calls: Readonly<Record<string, Call>>) =>
  programIn(cases, (golden) => programOfCall(golden, calls))

/** The ops that a case goes through on an adapter, by file: what the specs of tests/gpu compile, or run alone. */
const opsIn: Record<(typeof tracedFiles)[number], (name: string) => ReadonlySet<string>> = {
  attention: programIn(attentionCases, programOfAttention),
  edges: callIn(edgeFiles.edges, edgeCalls),
  elementwise: callIn(elementwiseCases, elementwiseCalls),
  integers: callIn(cornerFiles.integers, cornerCalls),
  ops: (name) => new Set(piecesOf(caseIn(opCases, name)).map(({ op }) => op)),
  shape: programIn(shapeCases, programOfShape),
}
const isTraced = (file: string): file is keyof typeof opsIn => file in opsIn

test('every op has values of PyTorch, or a reason for having none', () => {
  const listed = [...Object.keys(pytorchValues), ...Object.keys(withoutCounterpart)]
  expect(listed.sort()).toEqual(ops.map(({ name }) => name).sort())
})

describe('the case that is named goes through the op', () => {
  const claims = Object.entries(pytorchValues).flatMap(([op, [file, sample]]) =>
    isTraced(file) ? [{ op, file, sample }] : [],
  )
  test.each(claims)('$op: $file, $sample', ({ op, file, sample }) => {
    expect([...opsIn[file](sample)]).toContain(op)
  })

  test('in each of the files that docs/reference/ops.md says it of', () => {
    expect([...new Set(claims.map(({ file }) => file))].sort()).toEqual([...tracedFiles])
  })
})

describe('the cases that are named by hand exist', () => {
  const files = new Set(Object.values(pytorchValues).map(([file]) => file))
  test.each([...files].filter((file) => !isTraced(file)))('%s.json', (file) => {
    const names = namesIn(file)
    const wanted = Object.values(pytorchValues).flatMap(([from, sample]) =>
      from === file ? [sample] : [],
    )
    expect(wanted.filter((sample) => !names.has(sample))).toEqual([])
  })
})
