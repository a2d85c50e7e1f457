import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { parseSync } from 'vite'

// Reads .d.ts files as syntax: which names a module declares, brings in and gives on, and which types its declarations mention.

interface Syntax {
  readonly type: string
  readonly [key: string]: unknown
}

/** A name in a file. */
interface Place {
  readonly file: string
  readonly name: string
}

interface DeclarationFile {
  readonly declared: Map<string, Syntax[]>
  /** What a local name stands for elsewhere; `*` for the whole module. */
  readonly imported: Map<string, Place>
  readonly exported: Map<string, Place>
  readonly exportedWhole: string[]
}

export type Declarations = ReadonlyMap<string, DeclarationFile>

export function readDeclarations(folder: string): Declarations {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  const own = files
    .filter((file) => file.endsWith('.d.ts'))
    .map((file) => file.replaceAll('\\', '/'))
  return new Map(own.map((file) => [file, parse(file, readFileSync(join(folder, file), 'utf8'))]))
}

const nameOf = (node: unknown): string => {
  const { name, value } = node as { name?: string; value?: string }
  return name ?? value ?? ''
}

/** The file of this library that `source` means in `file`, or what it is called elsewhere. */
const resolve = (file: string, source: string): string =>
  source.startsWith('.')
    ? posix.join(posix.dirname(file), source).replace(/\.[jt]s$/, '.d.ts')
    : source

export function parse(file: string, text: string): DeclarationFile {
  const { program, errors } = parseSync(file, text, { lang: 'dts' })
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`)
  const module: DeclarationFile = {
    declared: new Map(),
    imported: new Map(),
    exported: new Map(),
    exportedWhole: [],
  }
  for (const node of program.body as unknown as Syntax[]) {
    const source = node['source'] ? resolve(file, nameOf(node['source'])) : undefined
    const specifiers = (node['specifiers'] ?? []) as Syntax[]
    if (node.type === 'ImportDeclaration') {
      for (const specifier of specifiers) {
        const name = specifier['imported'] ? nameOf(specifier['imported']) : '*'
        module.imported.set(nameOf(specifier['local']), { file: source!, name })
      }
    } else if (node.type === 'ExportAllDeclaration') {
      if (node['exported'])
        module.exported.set(nameOf(node['exported']), { file: source!, name: '*' })
      else module.exportedWhole.push(source!)
    } else {
      for (const specifier of specifiers) {
        const name = nameOf(specifier['local'])
        module.exported.set(nameOf(specifier['exported']), { file: source ?? file, name })
      }
      declare(module, file, node)
    }
  }
  return module
}

/** Notes what a statement declares, and whether it gives that on. */
function declare(module: DeclarationFile, file: string, node: Syntax): void {
  const isExport = node.type === 'ExportNamedDeclaration'
  const declaration = (isExport ? node['declaration'] : node) as Syntax | null
  if (!declaration) return
  const all =
    declaration.type === 'VariableDeclaration'
      ? (declaration['declarations'] as Syntax[])
      : [declaration]
  for (const one of all) {
    if (!one['id']) continue
    const name = nameOf(one['id'])
    module.declared.set(name, [...(module.declared.get(name) ?? []), one])
    if (isExport) module.exported.set(name, { file, name })
  }
}

/** Where a name that `file` knows is declared; undefined where it is the language's or another package's. */
function origin(all: Declarations, { file, name }: Place): Place | undefined {
  const module = all.get(file)
  if (!module) return undefined
  const [first, ...path] = name.split('.')
  if (path.length > 0) {
    const space = origin(all, { file, name: first })
    return space && origin(all, { file: space.file, name: path.join('.') })
  }
  if (name === '*' || module.declared.has(name)) return { file, name }
  const elsewhere = module.imported.get(name) ?? module.exported.get(name)
  if (elsewhere) return origin(all, elsewhere)
  const through = module.exportedWhole.map((whole) => origin(all, { file: whole, name }))
  return through.find((place) => place !== undefined)
}

/** Everything that can be imported from `entry`, namespaces opened, by `file#name` of where it is declared. */
function publicPlaces(all: Declarations, entry: string): Map<string, Place> {
  const found = new Map<string, Place>()
  const module = all.get(entry)
  if (!module) throw new Error(`no ${entry} among the declarations`)
  for (const target of module.exported.values()) {
    const place = origin(all, target)
    if (place?.name === '*')
      for (const [key, inner] of publicPlaces(all, place.file)) found.set(key, inner)
    else if (place) found.set(keyOf(place), place)
  }
  for (const whole of module.exportedWhole)
    for (const [key, inner] of publicPlaces(all, whole)) found.set(key, inner)
  return found
}

const keyOf = ({ file, name }: Place): string => `${file}#${name}`

/** Names of types in a declaration, without its type parameters; private members do not count. */
export function mentioned(node: unknown, own: ReadonlySet<string> = new Set()): Place[] {
  if (Array.isArray(node)) return node.flatMap((one) => mentioned(one, own))
  if (typeof node !== 'object' || node === null) return []
  const syntax = node as Syntax
  if (syntax['accessibility'] === 'private') return []
  const parameters = (syntax['typeParameters'] as { params?: Syntax[] } | null)?.params ?? []
  const bound = new Set([...own, ...parameters.map((parameter) => nameOf(parameter['name']))])
  if (syntax.type === 'TSMappedType') bound.add(nameOf(syntax['key']))
  if (syntax.type === 'TSConditionalType')
    for (const name of inferred(syntax['extendsType'])) bound.add(name)
  if (syntax.type === 'TSImportType') {
    const place = { file: nameOf(syntax['source']), name: nameOf(syntax['qualifier']) }
    return [place, ...mentioned(syntax['typeArguments'], bound)]
  }
  const named =
    syntax.type === 'TSTypeReference'
      ? syntax['typeName']
      : syntax.type === 'TSInterfaceHeritage' || syntax.type === 'TSClassImplements'
        ? syntax['expression']
        : syntax.type === 'ClassDeclaration'
          ? syntax['superClass']
          : undefined
  const full = named === undefined || named === null ? '' : pathOf(named as Syntax)
  const inner = Object.values(syntax).flatMap((value) => mentioned(value, bound))
  return full === '' || bound.has(full) ? inner : [{ file: '', name: full }, ...inner]
}

/** `A.B`, or `A`. */
const pathOf = (node: Syntax): string =>
  node.type === 'TSQualifiedName'
    ? `${pathOf(node['left'] as Syntax)}.${nameOf(node['right'])}`
    : nameOf(node)

const inferred = (node: unknown): string[] => {
  if (typeof node !== 'object' || node === null) return []
  const syntax = node as Syntax
  if (syntax.type === 'TSInferType') return [nameOf((syntax['typeParameter'] as Syntax)['name'])]
  return Object.values(syntax).flatMap(inferred)
}

/** What declarations that `entries` give out mention and no entry gives out: `file#name`, and by whom. */
export function unnamedTypes(
  all: Declarations,
  ...entries: readonly string[]
): Map<string, string[]> {
  const known = new Map(entries.flatMap((entry) => [...publicPlaces(all, entry)]))
  const unnamed = new Map<string, string[]>()
  for (const [by, { file, name }] of known) {
    const declarations = all.get(file)!.declared.get(name)
    for (const one of mentioned(declarations)) {
      const start =
        one.file === '' ? { file, name: one.name } : { ...one, file: resolve(file, one.file) }
      const place = origin(all, start)
      if (!place || known.has(keyOf(place))) continue
      const key = keyOf(place)
      unnamed.set(key, [...new Set([...(unnamed.get(key) ?? []), by])])
    }
  }
  return unnamed
}
