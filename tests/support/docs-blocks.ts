import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { entries } from '../../scripts/entries.ts'
import { parse } from './declarations.ts'
import * as library from './library.ts'
import type { CodeBlock } from './markdown.ts'
import { repository } from './repository.ts'

// Makes modules of the `ts` blocks of the documentation: with their page's preamble, and with the library's names that they use.

/** Entry points by the names that they export, types too. Of a name that several have, the first one. */
const homes = new Map(
  entries
    .flatMap(({ specifier, file }) =>
      [...parse(file, readFileSync(join(repository, file), 'utf8')).exported.keys()].map(
        (name): [string, string] => [name, specifier],
      ),
    )
    .reverse(),
)
const values = new Set(Object.keys(library))

/** Import statements at the beginning of a line. */
const imports = /^import [^'"]*?['"][^'"]+['"];?\n/gm

const uses = (code: string, name: string): boolean =>
  new RegExp(`(?<![\\w$.]|\\.\\s)${name}(?![\\w$]|:)`).test(code)

/** Whether the code itself binds the name. */
const binds = (code: string, name: string): boolean =>
  new RegExp(`(?:import|const|let|function|class)\\b[^=;()]*\\b${name}\\b`).test(code)

/** Returns the module of a block. A block that is not a whole file may use the names of its page's preamble, and the library's. */
export function moduleOf({ text, file }: CodeBlock, preamble: string): string {
  const own = (text.match(imports) ?? []).join('')
  if (file) return `${text}export {}\n`
  const code = text.replaceAll(imports, '')
  // In a function a block may declare a name of the preamble again.
  const body = `async function block() {\n${code}}\nawait block()\n`
  const taken = [...preamble.matchAll(/^ *(?:const|function) (\w+)/gm)].map(([, name]) => name)
  // A block with its own imports must have all that it needs.
  const isWhole = /from 'tabring[/']/.test(own)
  const lines = [...homes]
    .filter(
      ([name]) =>
        !binds(own, name) &&
        !taken.includes(name) &&
        (uses(preamble, name) || (!isWhole && uses(code, name) && !binds(code, name))),
    )
    .map(([name, home]) => `import ${values.has(name) ? '' : 'type '}{ ${name} } from '${home}'\n`)
  return `${own}${lines.join('')}${preamble}\n${body}export {}\n`
}

/** Returns a module as one that computes on the CPU with the library's sources. */
export const onCpu = (source: string): string => {
  const places = new Map(
    entries.map(({ specifier, file }) => [specifier, JSON.stringify(join(repository, file))]),
  )
  const code = source.replaceAll(/from '(tabring[^']*)'/g, (_, name) => `from ${places.get(name)}`)
  return `import { setDefaultDevice as onCpu } from ${places.get('tabring')}\nonCpu('cpu')\n${code}`
}
