import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'vite'
import { repository } from '../tests/support/repository.ts'
import { type Syntax, walk } from '../tests/support/syntax.ts'
import { entries } from './entries.ts'

// Fails when src and node have grown in one of these counts: `npm run check:counts`. scripts/counts.json holds what is allowed, and why it last
// rose; a count that has fallen is written there by `npm run check:counts -- --write`.

interface Allowed {
  count: number
  /** Why it last rose. */
  reason: string
}

const maxFileLines = 500
const maxFunctionLines = 70
/** An entry point with more is of several subjects. */
const maxPublicNames = 150
/** Lines of code that count as one block when they stand twice. */
const blockLines = 8

/** Words for which the field has a better one, or none is needed: as a part of an identifier, or in a comment. */
const glossary = [
  ...['told', 'crew', 'deal', 'dealt', 'strike', 'struck', 'wish', 'alike', 'anew', 'lamp'],
  ...['of its own', 'what becomes of', 'puts out', 'put out'],
]
/** Bounds are `max…` and `min…`. */
const bound = /^#?(?:most|least)(?:[A-Z]|$)/

const path = join(repository, 'scripts/counts.json')
const files = ['src', 'node']
  .flatMap((folder) =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(folder, name).replaceAll('\\', '/'),
    ),
  )
  .filter((name) => /\.(?:tsx?|wgsl|css)$/.test(name))
  .map((name) => ({ name, text: readFileSync(join(repository, name), 'utf8') }))

const linesOf = (text: string) => text.split('\n').length - 1

/** The words of an identifier: `#maxHeldBytes` is max, held, bytes. */
const partsOf = (name: string) =>
  name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/)

/** Where each word of the glossary begins in `text`. */
const glossaryUsesIn = (text: string) =>
  glossary.flatMap((word) => [...text.toLowerCase().matchAll(new RegExp(`\\b${word}s?\\b`, 'g'))])

const longFunctions: string[] = []
const longFiles: string[] = []
const glossaryUses: string[] = []
for (const { name, text } of files) {
  if (linesOf(text) > maxFileLines) longFiles.push(`${name} (${linesOf(text)})`)
  if (!/\.tsx?$/.test(name)) continue
  const { program, comments } = parseSync(name, text)
  const lineAt = (offset: number) => linesOf(text.slice(0, offset)) + 1
  for (const { value, start } of comments)
    for (const { 0: word, index } of glossaryUsesIn(value))
      glossaryUses.push(`${name}:${lineAt(start + 2 + index)} ${word}`)
  walk(program as unknown as Syntax, (node) => {
    if (node.type === 'Identifier' || node.type === 'PrivateIdentifier') {
      const { name: identifier } = node as Syntax & { name: string }
      const parts = partsOf(identifier)
      if (bound.test(identifier) || glossary.some((word) => parts.includes(word)))
        glossaryUses.push(`${name}:${lineAt(node.start)} ${identifier}`)
    }
    if (!/Function/.test(node.type)) return
    const lines = linesOf(text.slice(node.start, node.end)) + 1
    if (lines > maxFunctionLines) longFunctions.push(`${name}:${lineAt(node.start)} (${lines})`)
  })
}

/** Blocks that stand somewhere else too, line for line, beside imports, blank lines and comments. */
function repeatedBlocks(): string[] {
  const seen = new Map<string, string>()
  const repeated: string[] = []
  for (const { name, text } of files) {
    const lines = text.split('\n').flatMap((line, i) => {
      const own = line.trim()
      return own === '' || /^(?:import|\/\/|\/?\*|\})/.test(own) ? [] : [{ own, at: i + 1 }]
    })
    let until = 0
    for (let i = 0; i + blockLines <= lines.length; i++) {
      const block = lines.slice(i, i + blockLines).map(({ own }) => own)
      const key = block.join('\n')
      const where = `${name}:${lines[i].at}`
      const first = seen.get(key)
      if (first === undefined) seen.set(key, where)
      else if (i >= until) {
        repeated.push(`${where} is ${first}`)
        until = i + blockLines
      }
    }
  }
  return repeated
}

const blocks = repeatedBlocks()
const publicNames = Object.fromEntries(
  entries.map(({ specifier, file }) => {
    const { module } = parseSync(file, readFileSync(join(repository, file), 'utf8'))
    const count = module.staticExports.reduce((sum, { entries }) => sum + entries.length, 0)
    return [`public names of ${specifier}`, { count }]
  }),
)
const counts: Readonly<Record<string, { readonly count: number; readonly where?: string[] }>> = {
  'lines of src and node': { count: files.reduce((sum, { text }) => sum + linesOf(text), 0) },
  [`files over ${maxFileLines} lines`]: { count: longFiles.length, where: longFiles },
  [`functions over ${maxFunctionLines} lines`]: {
    count: longFunctions.length,
    where: longFunctions,
  },
  ...publicNames,
  'uses of words that the glossary replaces': { count: glossaryUses.length, where: glossaryUses },
  [`blocks of ${blockLines} lines that stand twice`]: { count: blocks.length, where: blocks },
}

const allowed: Record<string, Allowed> = JSON.parse(readFileSync(path, 'utf8'))
if (process.argv.includes('--list'))
  for (const [name, { count, where = [] }] of Object.entries(counts))
    console.log([`${name}: ${count}`, ...where.map((one) => `  ${one}`)].join('\n'))
let failed = 0
for (const [name, { count }] of Object.entries(publicNames)) {
  if (count <= maxPublicNames) continue
  failed++
  console.error(
    `counts: ${name}: ${count}, above the limit of ${maxPublicNames}. Move one subject to another entry point (src/entries).`,
  )
}
for (const [name, { count }] of Object.entries(counts)) {
  const known = allowed[name]?.count ?? Number.POSITIVE_INFINITY
  if (count > known) {
    failed++
    console.error(
      `counts: ${name}: ${known} are allowed, and there are ${count}. Join what is there twice or delete what nobody uses (npm run check:counts -- --list); or raise the number in scripts/counts.json and give the reason there.`,
    )
  } else if (count < known && process.argv.includes('--write'))
    allowed[name] = { count, reason: allowed[name]?.reason ?? '' }
  else if (count < known)
    console.log(
      `counts: ${name}: ${known} are allowed, and there are ${count}. npm run check:counts -- --write keeps that.`,
    )
}
if (process.argv.includes('--write')) writeFileSync(path, `${JSON.stringify(allowed, null, 2)}\n`)
console.log(`counts: ${Object.keys(counts).length} counted, ${failed} problems`)
if (failed > 0) process.exit(1)
