import { describe, expect, test } from 'vitest'
import { expandNodeList } from '../../../src/distributed/rendezvous/node-list.ts'

describe('names that a list stands for', () => {
  test.each<[string, string[]]>([
    ['alpha', ['alpha']],
    ['a[01-03,07],b5', ['a01', 'a02', 'a03', 'a07', 'b5']],
    ['n[1-2]c[3,5]', ['n1c3', 'n1c5', 'n2c3', 'n2c5']],
    ['a[08-11]', ['a08', 'a09', 'a10', 'a11']],
    ['a[9-11]', ['a9', 'a10', 'a11']],
    ['a[099-101]', ['a099', 'a100', 'a101']],
    ['a[5]', ['a5']],
    ['rack-1.node_[1-2].hpc', ['rack-1.node_1.hpc', 'rack-1.node_2.hpc']],
    ['gnode[10,20,25,37]', ['gnode10', 'gnode20', 'gnode25', 'gnode37']],
    ['[1-3]', ['1', '2', '3']],
    ['a1,a1', ['a1', 'a1']],
    [
      'x[0-1]y[0-1]z[0-1]',
      ['x0y0z0', 'x0y0z1', 'x0y1z0', 'x0y1z1', 'x1y0z0', 'x1y0z1', 'x1y1z0', 'x1y1z1'],
    ],
  ])('%s', (list, names) => {
    expect(expandNodeList(list)).toEqual(names)
  })
})

describe('what is no list, with its position', () => {
  test.each<[string, string]>([
    ['a[1-[2-3]]', 'expected a number at character 5 of "a[1-[2-3]]", got "["'],
    [
      'a[[1]]',
      'expected a number, since brackets cannot nest, at character 3 of "a[[1]]", got "["',
    ],
    ['a[1,[2]]', 'brackets cannot nest, at character 5'],
    ['a[1-3', 'expected a closing "]" for the bracket that opens at character 2'],
    ['a]1', 'at character 2 of "a]1", got "]"'],
    ['a[3-1]', 'expected an ascending range, not 3-1, at character 3'],
    ['a[]', 'expected a number at character 3 of "a[]", got "]"'],
    ['a[1,]', 'expected a number at character 5 of "a[1,]", got "]"'],
    ['a[1-]', 'expected a number at character 5'],
    ['a[1x]', 'expected "," or "]" at character 4 of "a[1x]", got "x"'],
    ['', 'expected a name at character 1 of "", got the end'],
    ['a,,b', 'expected a name at character 3 of "a,,b", got ","'],
    ['a,', 'expected a name at character 3 of "a,", got the end'],
    ['a b', 'at character 2 of "a b", got " "'],
    ['a[1-99999999]', 'expected at most 65536 nodes at character 3'],
    ['a[1-300]b[1-300]', 'expected at most 65536 nodes at character 1'],
  ])('%s', (list, text) => {
    expect(() => expandNodeList(list)).toThrow(text)
  })
})
