import { expect, test } from 'vitest'
import { crash, start } from '../support/debugged-launcher.ts'
import { endsOf, groupsOf, useElasticProgram } from '../support/elastic-program.ts'
import { says } from '../support/launcher-process.ts'

/** A user's own training under `tabring run --elastic`, whose tabs die while others train on. */

useElasticProgram()

test('a killed tab is opened again and joins the rank that trained on, to the bits of a run without a break', async () => {
  const whole = start('--elastic=2:2', 'train.ts')
  expect(await whole.ended, whole.told.stderr).toBe(0)
  expect(groupsOf(whole)).toEqual(['0 group 0 of 2 from 0', '1 group 0 of 2 from 0'])
  const wanted = endsOf(whole)
  expect(wanted).toHaveLength(2)

  const run = start('--elastic=1:2', 'train.ts', 'wait=0/1/4', 'hold=9/2')
  await says(run, '[1]: waits at 4')
  await crash('rank 1 of 2')
  expect(await run.ended, run.told.stderr).toBe(0)
  expect(groupsOf(run)).toEqual([
    '0 group 0 of 2 from 0',
    '0 group 1 of 1 from 3',
    '0 group 2 of 2 from 9',
    '1 group 0 of 2 from 0',
    '1 group 2 of 2 from 9',
  ])
  expect(run.told.stderr).toMatch(
    /rank 1: its tab crashed.*\n.*restart 1 of 3: its tab is opened again\n.*continuing with 1 rank\n.*continuing with 2 ranks\n/,
  )
  expect(endsOf(run)).toEqual(wanted)
})
