import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The names of the files do not change, because the manager has them in a table. No source maps: they would be built into the binary.
export default defineConfig({
  plugins: [svelte()],
  base: '/',
  build: {
    target: 'es2022',
    sourcemap: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: 'assets/console.js',
        assetFileNames: 'assets/console.[ext]',
        inlineDynamicImports: true,
      },
    },
  },
});
