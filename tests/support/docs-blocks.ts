import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as library from '../../src/index.ts'
import { parse } from './declarations.ts'
import type { CodeBlock } from './markdown.ts'
import { repository } from './repository.ts'

// Makes modules of the `ts` blocks of the documentation: with their page's preamble, and with the library's names that they use.

/** Every name that `tabring` exports, types too. */
const exported = [
  ...parse('index.ts', readFileSync(join(repository, 'src/index.ts'), 'utf8')).exported.keys(),
]
const values = new Set(Object.keys(library))

/** Import statements at the beginning of a line. */
const imports = /^import [^'"]*?['"][^'"]+['"];?\n/gm

const uses = (code: string, name: string): boolean =>
  new RegExp(`(?<![\\w$.]|\\.\\s)${name}(?![\\w$]|:)`).test(code)

/** Whether the code itself binds the name. */
const binds = (code: string, name: string): boolean =>
  new RegExp(`(?:import|const|let|function|class)\\b[^=;()]*\\b${name}\\b`).test(code)

const given = (code: string, name: string): boolean => uses(code, name) && !binds(code, name)

/** A block as a module. */
export interface BlockModule {
  readonly source: string
  /** Whether the block says all that it needs: it imports the library, and takes nothing as given. */
  readonly isProgram: boolean
}

/** Returns the module of a block. `preamble` declares what the page takes as given. */
export function moduleOf({ text }: CodeBlock, preamble: string): BlockModule {
  const own = (text.match(imports) ?? []).join('')
  const code = text.replaceAll(imports, '')
  // In a function of its own a block may declare a name of the preamble again; exports stay at the top.
  const hasExports = /^export /m.test(code)
  const body = hasExports ? code : `async function block() {\n${code}}\nvoid block\n`
  const taken = [...preamble.matchAll(/(?:declare (?:const|function)|,) (\w+)/g)].map(
    ([, name]) => name,
  )
  const names = exported.filter(
    (name) => !binds(own, name) && !taken.includes(name) && given(code, name),
  )
  const lines = names.map(
    (name) => `import ${values.has(name) ? '' : 'type '}{ ${name} } from 'tabring'\n`,
  )
  return {
    source: `${own}${lines.join('')}${preamble}\n${body}export {}\n`,
    isProgram:
      /from 'tabring'/.test(own) &&
      exported.every((name) => binds(own, name) || !given(code, name)) &&
      !taken.some((name) => given(code, name)),
  }
}

/** Returns a program as a module that computes on the CPU with the library's sources. */
export const cpuProgram = ({ text }: CodeBlock): string => {
  const index = JSON.stringify(join(repository, 'src/index.ts'))
  const code = text.replaceAll(/from 'tabring'/g, `from ${index}`)
  return `import { setDefaultDevice as onCpu } from ${index}\nonCpu('cpu')\n${code}`
}
