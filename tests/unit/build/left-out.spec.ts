import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseAst, transformWithOxc } from 'vite'
import { describe, expect, it } from 'vitest'
import { leaveOut, ofOps, ofSettings } from '../../../node/left-out.ts'
import { repository } from '../../support/repository.ts'

const without = (code: string, leftOut = ofOps) => leaveOut(code, parseAst(code), leftOut)

describe('leaveOut', () => {
  it('empties the cases of an op and marks its making as pure', () => {
    const code =
      "export const twice = defineOp({ name: 'twice', cases: [one(2), two({ cases: [3] })], flops: 2 })"
    expect(without(code)).toBe(
      "export const twice = /* @__PURE__ */ defineOp({ name: 'twice', cases: [], flops: 2 })",
    )
  })

  it('takes cases that are named elsewhere, and several ops of a file', () => {
    const code = 'const a = defineOp({ cases })\nconst b = defineOp({ cases: all.map(one) })'
    expect(without(code)).toBe(
      'const a = /* @__PURE__ */ defineOp({ cases: [] })\nconst b = /* @__PURE__ */ defineOp({ cases: [] })',
    )
  })

  it('leaves all else as it is', () => {
    const code = 'const cases = [1]\nother({ cases: [2] })'
    expect(without(code)).toBe(code)
  })

  it('leaves no case in any file of ops', async () => {
    const kernels = join(repository, 'src/kernels')
    const files = readdirSync(kernels, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.ts'),
    )
    let ops = 0
    for (const file of files) {
      const text = readFileSync(join(kernels, file), 'utf8')
      if (!/= defineOp/.test(text)) continue
      const { code } = await transformWithOxc(text, file)
      const left = without(code)
      const made = left.match(/\/\* @__PURE__ \*\/ defineOp\(/g)?.length ?? 0
      ops += made
      expect(left.match(/\bcases: \[\]/g)?.length ?? 0, file).toBe(made)
      expect(left, file).not.toMatch(/\bcases: (?!\[\])/)
    }
    expect(ops).toBeGreaterThan(40)
  })

  it('leaves no text of the command line in the table of settings when the page is built', async () => {
    const file = 'src/trainer/settings/table.ts'
    const { code } = await transformWithOxc(readFileSync(join(repository, file), 'utf8'), file)
    const left = without(code, ofSettings)
    const count = (text: string, property: string) =>
      text.match(new RegExp(`^\\s*${property}: `, 'gm'))?.length ?? 0
    expect(count(code, 'flag')).toBeGreaterThan(20)
    for (const property of ['flag', 'help', 'doc', 'docDefault'])
      expect(count(left, property)).toBe(0)
    expect(count(left, 'label')).toBe(count(code, 'label'))
    expect(() => parseAst(left)).not.toThrow()
  })
})
