import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { variables } from '../../../src/distributed/rendezvous/env.ts'
import { type InjectedEnvironment, injectedName } from '../../../src/util/injected.ts'
import { repository } from '../../support/repository.ts'

// The specs after this one in the same worker load their modules again.
afterAll(() => vi.resetModules())

type EnvModule = typeof import('../../../src/distributed/rendezvous/env.ts')

/** The module as a page with this address, or a tab with this launcher, has it. */
async function load(
  around: { injected?: InjectedEnvironment; address?: string } = {},
): Promise<EnvModule> {
  vi.resetModules()
  if (around.injected) vi.stubGlobal(injectedName, around.injected)
  if (around.address) vi.stubGlobal('location', new URL(around.address))
  return import('../../../src/distributed/rendezvous/env.ts')
}

beforeEach(() => {
  for (const name of Object.keys(variables)) vi.stubEnv(name, undefined)
})
afterEach(() => {
  vi.unstubAllEnvs()
  vi.unstubAllGlobals()
})

test('a launcher puts variables and arguments into the tab', async () => {
  const injected = { variables: { RANK: '2', WORLD_SIZE: '3' }, args: ['--lr', '0.1'] }
  // The page's own address does not count then.
  const { env, args } = await load({ injected, address: 'http://localhost/?RANK=7&args=x' })
  expect([env.RANK, env.WORLD_SIZE, ...args]).toEqual(['2', '3', '--lr', '0.1'])
  expect({ ...env }).toEqual({ RANK: '2', WORLD_SIZE: '3' })
  expect(Object.keys(env)).toEqual(['RANK', 'WORLD_SIZE'])
  expect(['RANK', 'LOCAL_RANK'].map((name) => Object.hasOwn(env, name))).toEqual([true, false])
})

test('by hand they come from the address, the room from behind the #', async () => {
  const address = 'http://localhost/?RANK=1&WORLD_SIZE=2&args=--lr&args=0.1#room=ab&key=cd'
  const { env, args } = await load({ address })
  expect({ ...env }).toEqual({ RANK: '1', WORLD_SIZE: '2', ROOM_ID: 'ab', ROOM_KEY: 'cd' })
  expect(args).toEqual(['--lr', '0.1'])
})

test('a link does not say where checkpoints go; a launcher and the environment do', async () => {
  const variables = { CHECKPOINT_URL: 'http://localhost:1/checkpoints-ab/' }
  const { env } = await load({ address: `http://localhost/?${new URLSearchParams(variables)}` })
  expect('CHECKPOINT_URL' in env).toBe(false)
  const { env: given } = await load({ injected: { variables, args: [] } })
  expect(given.CHECKPOINT_URL).toBe(variables.CHECKPOINT_URL)
})

test('in Node they are those of the process', async () => {
  vi.stubEnv('RANK', '4')
  const { env } = await load()
  expect(env.RANK).toBe('4')
  expect(env.PATH).toBe(process.env.PATH)
  expect('RANK' in env).toBe(true)
  expect('WORLD_SIZE' in env).toBe(false)
})

test('one of the table that is missing says who sets it', async () => {
  const { env } = await load({ address: 'http://localhost/' })
  expect(() => env.WORLD_SIZE).toThrow(
    'env: WORLD_SIZE is not set. "npx tabring run" sets it, see "npx tabring docs launching".',
  )
  expect(env.SOMETHING_ELSE).toBeUndefined()
})

test('it is read only', async () => {
  const { env } = await load()
  expect(() => Object.assign(env, { RANK: '1' })).toThrow('env: cannot set RANK, env is read-only')
})

describe('docs/reference/launching.md', () => {
  const text = readFileSync(join(repository, 'docs/reference/launching.md'), 'utf8')
  test.each(Object.entries(variables))('has %s as the code has it', (name, meaning) => {
    expect(text).toContain(`| \`${name}\` | ${meaning} |`)
  })
})
