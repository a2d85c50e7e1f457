import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Command } from 'commander'
import { describe, expect, test } from 'vitest'
import { docsText } from '../../../node/docs.ts'
import { addFlags } from '../../../node/launch/flags.ts'
import { parseLaunch } from '../../../node/launch/options.ts'
import { parseOptions } from '../../../node/train/options.ts'
import { exists, userPages } from '../../support/markdown.ts'
import { repository } from '../../support/repository.ts'
import { commandsIn } from '../../support/shell.ts'

// Every command of README.md, CONTRIBUTING.md and docs/ exists, with the flags that are given: in `sh` blocks, in indented ones, and in code
// spans that begin with one of ours.

const { scripts, devDependencies } = JSON.parse(
  readFileSync(join(repository, 'package.json'), 'utf8'),
) as Record<'scripts' | 'devDependencies', Record<string, string>>

/** What a shell, npm or a cluster has: not ours to check. */
const foreign = ['openssl', 'apt-get', 'sbatch', 'cd', 'cat', 'curl', 'ls', 'tar', 'mkdir', 'git']
const npmCommands = ['ci', 'install', 'init', 'pkg', 'pack']

const flagsIn = (help: string): string[] =>
  [...help.matchAll(/(?:^|\s)(--?[a-z][\w-]*)(?=[\s,=[]|$)/gm)].map(([, flag]) => flag)

/** Asks a script of ours for its flags. */
const flagsOfHelp = async (script: string): Promise<string[]> => {
  const command = [join(repository, script), '--help']
  const { stdout } = await promisify(execFile)(join(repository, 'node_modules/.bin/tsx'), command)
  return flagsIn(stdout)
}
const startFlags = flagsOfHelp('node/start.ts')

/** The flags that a part of the benchmark defines: asking each for its help would take seconds. */
const benchFlags = (part: string): string[] =>
  [`bench/${part}.ts`, 'bench/command/flags.ts', 'node/command-line.ts']
    .map((path) => readFileSync(join(repository, path), 'utf8'))
    .flatMap((text) => [...text.matchAll(/'(--[\w-]+)[ ',]/g)].map(([, flag]) => flag))

const launchFlags = addFlags(new Command()).options.flatMap(({ long, short }) => [long, short])
const trainHelp = parseOptions(['--help'], {})
const trainFlags = trainHelp.kind === 'help' ? flagsIn(trainHelp.text) : []

const flagOf = (word: string): string => word.split('=')[0].replaceAll('_', '-')
const unknownFlags = (words: readonly string[], known: readonly (string | undefined)[]) =>
  words
    .filter((word) => /^--?[a-z]/.test(word))
    .map(flagOf)
    .filter((flag) => ![...known, '--help', '-h'].includes(flag))
    .map((flag) => `no flag ${flag}`)

const isModule = (word: string) => /\.[cm]?[jt]sx?$/.test(word)

/** Returns what is wrong with the arguments of `tabring`. Whole commands are parsed too, with their values. */
function checkTabring([name, ...args]: readonly string[], isWhole: boolean): string[] {
  if (name === undefined || name === '--help') return []
  if (name === 'docs') {
    if (/^[<[]/.test(args[0] ?? '')) return []
    return messageOf(() => docsText(args))
  }
  if (name !== 'run' && name !== 'launch') return [`no command tabring ${name}`]
  const at = args.findIndex(isModule)
  const flags = at < 0 ? args : args.slice(0, at)
  const wrong = unknownFlags(flags, [...launchFlags, ...(name === 'launch' ? ['--use-env'] : [])])
  if (wrong.length > 0 || !isWhole || args.some((word) => word.includes('…'))) return wrong
  return messageOf(() => parseLaunch(name, args, {}))
}

function messageOf(act: () => unknown): string[] {
  try {
    act()
    return []
  } catch (thrown) {
    return [(thrown as Error).message]
  }
}

/** Returns what is wrong with the arguments of a script of package.json. */
async function checkScript(name: string, args: readonly string[], isWhole: boolean) {
  const script = scripts[name]
  if (script === undefined) return [`no script ${name} in package.json`]
  if (args.length === 0) return []
  if (name === 'train') {
    const wrong = unknownFlags(args, trainFlags)
    if (wrong.length > 0 || !isWhole || args.some((word) => word.includes('…'))) return wrong
    return messageOf(() => parseOptions(args, {}))
  }
  if (name === 'start') return unknownFlags(args, await startFlags)
  if (name === 'bench') {
    const [part, ...rest] = args
    if (part.startsWith('-')) return unknownFlags(args, benchFlags('run'))
    const parts = readFileSync(join(repository, 'bench/run.ts'), 'utf8')
    if (!new RegExp(`^ +${part}: bench`, 'm').test(parts)) return [`no benchmark ${part}`]
    return unknownFlags(rest, benchFlags(part))
  }
  // Others hand on what they do not know, or read their arguments by hand.
  const [, file] = /^tsx (\S+)/.exec(script) ?? []
  const source = file ? sourcesOf(file) : ''
  const flags = args.filter((word) => word.startsWith('--')).map(flagOf)
  return flags.filter((flag) => !source.includes(flag)).map((flag) => `no flag ${flag}`)
}

/** A script, with the files of the folder that has its name. */
function sourcesOf(script: string): string {
  const folder = join(repository, script.replace(/\.ts$/, ''))
  const others = existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : []
  return [join(repository, script), ...others].map((path) => readFileSync(path, 'utf8')).join('')
}

/** Returns what is wrong with a command. */
async function check(words: readonly string[], isWhole: boolean): Promise<string[]> {
  const [program, first = '', ...rest] = words
  const dashes = rest.indexOf('--')
  const behind = dashes < 0 ? [] : rest.slice(dashes + 1)
  if (program === 'srun') {
    const at = words.findIndex((word) => word === 'npx' || word === 'tabring')
    return at < 0 ? [] : check(words.slice(at), isWhole)
  }
  if (program === 'tabring') return checkTabring(words.slice(1), isWhole)
  if (program === 'node') {
    if (first === 'bin/tabring.js') return checkTabring(rest, isWhole)
    return first === '--version' || exists(first) ? [] : [`no file ${first}`]
  }
  if (program === 'npm') {
    if (npmCommands.includes(first)) return []
    if (first === 'start' || first === 'test')
      return checkScript(first, words[2] === '--' ? words.slice(3) : [], isWhole)
    return first === 'run' ? checkScript(rest[0], behind, isWhole) : [`no command npm ${first}`]
  }
  if (program === 'npx') {
    if (first === 'tabring') return checkTabring(rest, isWhole)
    if (!(first in devDependencies) && first !== 'tsc') return [`no package ${first}`]
    const paths = rest.filter((word) => /^(tests|src|demos|bench|scripts)\//.test(word))
    return paths.filter((path) => !exists(path)).map((path) => `no file ${path}`)
  }
  return foreign.includes(program) ? [] : [`${program}: no command that is checked`]
}

const pages = userPages()
const blocks = pages.flatMap((page) =>
  page.blocks.filter(({ language }) => language === 'sh' || language === null),
)
const ours = /^(npm (run|start|test)|npx tabring|tabring (run|launch|docs)|node bin\/)/
const spans = pages.flatMap(({ path, prose }) =>
  prose.flatMap((line, index) =>
    [...line.matchAll(/`([^`]+)`/g)]
      .map(([, text]) => text.replaceAll('\\|', '|'))
      .filter((text) => ours.test(text))
      .map((text) => ({ page: path, line: index + 1, text })),
  ),
)

describe('commands', { timeout: 60_000 }, () => {
  test('there are some of each kind', () => {
    const all = blocks.flatMap(({ text }) => commandsIn(text)).map((words) => words.slice(0, 2))
    for (const some of [
      ['npm', 'start'],
      ['npm', 'run'],
      ['npx', 'tabring'],
      ['srun', 'npx'],
    ])
      expect(all).toContainEqual(some)
    expect(spans.length).toBeGreaterThan(20)
  })

  test.each(blocks)('$page:$line', async ({ text }) => {
    for (const words of commandsIn(text))
      expect(await check(words, true), words.join(' ')).toEqual([])
  })

  test('in code spans', async () => {
    const wrong: string[] = []
    for (const { page, line, text } of spans)
      for (const words of commandsIn(text))
        for (const reason of await check(words, false)) wrong.push(`${page}:${line} ${reason}`)
    expect(wrong).toEqual([])
  })

  test.each([
    ['npm run nothing', 'no script nothing in package.json'],
    ['npm start -- --hosts', 'no flag --hosts'],
    ['npm run train -- --epoch 3', 'no flag --epoch'],
    ['npm run train -- --epochs 0', '--epochs'],
    ['npm run bench -- nothing', 'no benchmark nothing'],
    ['npm run bench -- lanes --nothing', 'no flag --nothing'],
    ['npx tabring run --nproc 4 train.ts', 'no flag --nproc'],
    ['npx tabring run --nproc-per-node many train.ts', '--nproc-per-node'],
    ['npx tabring walk train.ts', 'no command tabring walk'],
    ['npx tabring docs nothing', 'there is no page'],
    ['npx vitest run tests/unit/nothing.spec.ts', 'no file tests/unit/nothing.spec.ts'],
    ['rm -rf .', 'rm: no command that is checked'],
  ])('%s is refused', async (line, reason) => {
    const [words] = commandsIn(line)
    expect((await check(words, true)).join()).toContain(reason)
  })
})
