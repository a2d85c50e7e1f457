import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'vite'
import { expect, test } from 'vitest'
import { repository } from '../../support/repository.ts'
import { type Syntax, walk } from '../../support/syntax.ts'

const declares = /^(?:MethodDefinition|FunctionDeclaration|ClassDeclaration|VariableDeclarator)$/

/** The name of what is declared: `#begin` for a private method. */
const nameOf = ({ key, id }: Syntax): string | undefined =>
  key ? (key.type === 'PrivateIdentifier' ? `#${key.name}` : key.name) : id?.name

/** Lines of what a file declares by that name, in classes too. errors: where there is none. */
function linesOf(file: string, name: string): number {
  const text = readFileSync(join(repository, file), 'utf8')
  let found: Syntax | undefined
  walk(parseSync(file, text).program as unknown as Syntax, (node) => {
    if (declares.test(node.type) && nameOf(node) === name) found ??= node
  })
  if (!found) throw new Error(`docs/tour.md: ${file} declares no ${name}`)
  return text.slice(found.start, found.end).split('\n').length
}

/** The places that the tour names, by file: the names in it that are to be read, none for the whole. */
function stops(): { file: string; names: string[] }[] {
  const tour = readFileSync(join(repository, 'docs/tour.md'), 'utf8')
  const items = tour
    .split('\n')
    .filter((line) => /^- \[[\w.-]+\]\(\.\.\/.*\.(?:ts|wgsl)\)/.test(line))
  return items.flatMap((line) => {
    const files = [...line.matchAll(/\]\(\.\.\/([^)]+\.(?:ts|wgsl))\)/g)].map(([, file]) => file!)
    const names = /^[^:]*: ((?:`#?\w+`(?:, )?)+)/.exec(line)?.[1]
    return files.map((file) => ({
      file,
      names: [...(names ?? '').matchAll(/`(#?\w+)`/g)].map(([, name]) => name!),
    }))
  })
}

test('docs/tour.md explains a step in at most 25 files and 3,000 lines', () => {
  const all = stops()
  const lines = all.map(({ file, names }) =>
    names.length === 0
      ? readFileSync(join(repository, file), 'utf8').trimEnd().split('\n').length
      : names.reduce((sum, name) => sum + linesOf(file, name), 0),
  )
  const sum = lines.reduce((a, b) => a + b, 0)
  const table = all.map(({ file }, i) => `${lines[i]} ${file}`).join('\n')
  expect(all.length, table).toBeLessThanOrEqual(25)
  expect(all.length).toBeGreaterThan(20)
  expect(sum, table).toBeLessThanOrEqual(3000)
})

test('docs/how-it-works/rooms-and-links.md leads from a closed channel to the next step in at most 15 files', () => {
  const text = readFileSync(join(repository, 'docs/how-it-works/rooms-and-links.md'), 'utf8')
  const [, section = ''] = text.split(/^### The way of a lost tab.*/m)
  const files = new Set(
    [...section.matchAll(/\(\.\.\/\.\.\/(src\/[^)]+)\)/g)].map(([, file]) => file!),
  )
  expect(files.size).toBeGreaterThan(10)
  expect(files.size, [...files].join('\n')).toBeLessThanOrEqual(15)
  for (const [, file, names] of section.matchAll(
    /\((?:\.\.\/)+(src[^)]+)\): ((?:`#?\w+`(?: and )?)+)/g,
  ))
    for (const [, name] of names!.matchAll(/`(#?\w+)`/g)) linesOf(file!, name!)
})
