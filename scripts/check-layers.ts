import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { repository } from '../tests/support/repository.ts'
import {
  allowed,
  apart,
  circles,
  mayUsePage,
  nodeOnly,
  packages,
  typesOnly,
  withoutPage,
} from './layers.ts'

// Fails when a file imports what its layer may not, or when imports form a circle that layers.ts does not name.

/** The ways to write an import: `from '…'`, `import '…'`, `import('…')`, `new URL('…', import.meta.url)`. */
const importForms = [
  /\b(?:import|export)\s+(?<type>type\s)?[^'";]*?\sfrom\s+'(?<name>[^']+)'/g,
  /\bimport\s+(?<type>type\s)?'(?<name>[^']+)'/g,
  /\b(?<type>typeof\s+)?import\(\s*'(?<name>[^']+)'\s*\)/g,
  /\bnew URL\(\s*(?<type>type\s)?'(?<name>[^']+)',\s*import\.meta\.url/g,
]

/** Names that belong to pages. */
const pageOnly = /\b(?:window|document)\.[a-zA-Z]/

const files = ['src', 'node', 'demos']
  .flatMap((folder) =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(folder, name),
    ),
  )
  .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts'))
  .map((name) => name.replaceAll('\\', '/'))

const isNamed = (name: string, pattern: string) => {
  const [start, end] = pattern.split('*')
  return end === undefined ? name === pattern : name.startsWith(start) && name.endsWith(end)
}
const isUnder = (file: string, layer: string) => {
  const names = file.split('/')
  const own = layer.split('/')
  return own.length <= names.length && own.every((name, i) => isNamed(names[i], name))
}
const depthOf = (layer: string) => layer.split('/').length
const layerOf = (file: string) =>
  Object.keys(allowed)
    .filter((layer) => isUnder(file, layer))
    // The deepest one, and of these the one that names it.
    .sort((a, b) => depthOf(b) - depthOf(a) || b.length - a.length)[0]

const problems: string[] = []
const problem = (file: string, what: string, remedy: string) =>
  problems.push(`${file}: ${what}. ${remedy}.`)
const listOf = (names: readonly string[] | undefined) => names?.join(', ') || 'nothing'

// A folder's rooms are in import order.
const order = Object.keys(allowed)
for (const [at, layer] of order.entries()) {
  const later = allowed[layer].find(
    (other) =>
      order.indexOf(other) > at && dirname(other) === dirname(layer) && layer.startsWith('src/'),
  )
  if (later)
    problem(
      'scripts/layers.ts',
      `${layer} may import ${later}, which comes after it`,
      'List a room after those that it imports',
    )
}

interface Imports {
  readonly all: string[]
  readonly values: string[]
}
/** Grants of the tables that some import needs. */
const used = new Set<string>()
const graph = new Map<string, Imports>()
for (const file of files) {
  const text = readFileSync(join(repository, file), 'utf8')
  const layer = layerOf(file)
  const code = text.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*/gm, '')
  const named = importForms.flatMap((form) =>
    [...code.matchAll(form)].map(({ groups }) => ({
      isType: groups!.type !== undefined,
      name: groups!.name,
    })),
  )
  const imports = named
    .filter(({ name }) => name.startsWith('.'))
    .map(({ isType, name }) => ({
      isType,
      path: relative(
        repository,
        resolve(repository, dirname(file), name.replace(/\?.*$/, '')),
      ).replaceAll('\\', '/'),
    }))
  graph.set(file, {
    all: imports.map(({ path }) => path),
    values: imports.filter(({ isType }) => !isType).map(({ path }) => path),
  })
  if (!layer && file.startsWith('src/'))
    problem(file, 'is in no layer', 'Add a row for it to scripts/layers.ts')
  if (layer !== 'node') {
    const own = packages[layer ?? 'src']
    for (const { name } of named) {
      if (name.startsWith('.') || own?.some((one) => isUnder(name, one))) continue
      problem(
        file,
        `may not import the package ${name}`,
        `Packages of ${layer ?? 'src'}: ${listOf(own)}`,
      )
    }
  }
  for (const { path, isType } of imports) {
    if (isUnder(path, nodeOnly) && layer !== 'node' && layer !== nodeOnly) {
      problem(
        file,
        `may not import ${path}, which runs in Node alone`,
        `Move what both sides need out of ${nodeOnly}`,
      )
      continue
    }
    if (!/^(src|demos)\//.test(path)) {
      if (layer && layer !== 'node' && !/^(docs|public)\//.test(path) && path !== 'package.json')
        problem(file, `may not import ${path}`, 'Pages and the library import src and demos alone')
      continue
    }
    if (!layer || layerOf(path) === layer) continue
    const may = [...allowed[layer], ...(isType ? (typesOnly[layer] ?? []) : [])]
    const granting = may.filter((other) => isUnder(path, other))
    for (const grant of granting) used.add(`${layer} ${grant}`)
    if (granting.length === 0)
      problem(
        file,
        `may not import ${isType ? 'types of ' : ''}${path}`,
        `${layer} may import ${listOf(may)} (scripts/layers.ts)`,
      )
  }
  const own = apart.find((folder) => isUnder(file, folder))
  for (const { path } of imports) {
    const other = own && apart.find((folder) => folder !== own && isUnder(path, folder))
    if (other)
      problem(file, `may not import ${path}`, `${own} and ${other} know nothing of each other`)
  }
  const isPage = layer === 'demos/*/*.tsx' || mayUsePage.has(file)
  if (withoutPage.some((other) => isUnder(file, other)) && !isPage) {
    const code = text.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')
    if (pageOnly.test(code))
      problem(file, 'uses window or document', 'This file also runs in workers and in Node')
  }
}

for (const table of [allowed, typesOnly])
  for (const [layer, grants] of Object.entries(table))
    for (const grant of grants)
      if (!used.has(`${layer} ${grant}`))
        problem('scripts/layers.ts', `grants ${layer} the unused ${grant}`, 'Delete the grant')

/** The circles of a graph of imports: sets of files each of which reaches all others. source: Tarjan 1972. */
function circlesOf(importsOf: (file: string) => readonly string[]): string[][] {
  const found: string[][] = []
  const indices = new Map<string, number>()
  const lows = new Map<string, number>()
  const open: string[] = []
  const visit = (file: string): number => {
    const index = indices.size
    indices.set(file, index)
    lows.set(file, index)
    open.push(file)
    for (const next of importsOf(file)) {
      if (!indices.has(next)) lows.set(file, Math.min(lows.get(file)!, visit(next)))
      else if (open.includes(next)) lows.set(file, Math.min(lows.get(file)!, indices.get(next)!))
    }
    if (lows.get(file) === index) {
      const circle = open.splice(open.indexOf(file)).sort()
      if (circle.length > 1) found.push(circle)
    }
    return lows.get(file)!
  }
  for (const file of graph.keys()) if (!indices.has(file)) visit(file)
  return found
}

const ofValues = circlesOf((file) => graph.get(file)?.values ?? [])
for (const circle of ofValues)
  problem(circle[0], `is in a circle of imports: ${circle.join(', ')}`, 'Cut one of its imports')
const left = new Set(circles.map(({ files }) => [...files].sort().join(', ')))
// One of values has been reported.
for (const circle of ofValues.length > 0 ? [] : circlesOf((file) => graph.get(file)?.all ?? [])) {
  if (left.delete(circle.join(', '))) continue
  problem(
    circle[0],
    `is in a circle of type imports: ${circle.join(', ')}`,
    'Move the type that both need to the lower file, or give the lower one an interface of what it uses',
  )
}
for (const circle of ofValues.length > 0 ? [] : left)
  problem(
    'scripts/layers.ts',
    `names a circle that is gone or has changed: ${circle}`,
    'Remove or correct it',
  )

for (const text of problems) console.error(text)
console.log(`layers: ${files.length} files, ${problems.length} problems`)
process.exit(problems.length > 0 ? 1 : 0)
