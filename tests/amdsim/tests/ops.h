// clang-format off
// A table, in columns. Each op: in: float a,b ; unsigned u,v ; out 4 dwords
#ifndef DEV
#define DEV
#endif
#include <stdint.h>
typedef unsigned u32_; typedef unsigned long long u64_;
union FU { float f; u32_ u; }; union DU { double d; u64_ u; struct { u32_ lo, hi; }; };
DEV static inline u32_ fu(float f){ FU x; x.f=f; return x.u; }
DEV static inline void pd(u32_* o,double d){ DU x; x.d=d; o[0]=x.lo; o[1]=x.hi; }
DEV static inline void p64(u32_* o,u64_ d){ o[0]=(u32_)d; o[1]=(u32_)(d>>32); }
DEV static inline int imin_(int a,int b){return a<b?a:b;}
#define NOPS 46
DEV static void doop(int k,float a,float b,u32_ u,u32_ v,u32_* o){
 double A=a,B=b; int iu=(int)u, iv=(int)v; u64_ U=((u64_)u<<32)|v, V=((u64_)v<<20)|(u>>7)|1;
 switch(k){
 case 0: o[0]=fu(a/b); o[1]=fu(sqrtf(fabsf(a))); break;
 case 1: pd(o,A/B); pd(o+2,sqrt(fabs(A))); break;
 case 2: o[0]=fu(fmaf(a,b,1.5f)); pd(o+2,fma(A,B,A)); break;
 case 3: o[0]=u/(v|1); o[1]=u%(v|1); break;
 case 4: o[0]=(u32_)(iu/(iv|1)); o[1]=(u32_)(iu%(iv|1)); break;
 case 5: p64(o,U/V); p64(o+2,U%V); break;
 case 6: p64(o,U*V); p64(o+2,(u64_)(((long long)U)>>(v&63))); break;
 case 7: p64(o,U<<(u&63)); p64(o+2,U>>(u&63)); break;
 case 8: o[0]=(u32_)(int)a; o[1]=(u32_)(a>0?a:0); o[2]=fu((float)iu); o[3]=fu((float)u); break;
 case 9: pd(o,(double)(long long)U); pd(o+2,(double)U); break;
 case 10: p64(o,(u64_)(long long)A); o[2]=(u32_)(int)A; o[3]=fu((float)(long long)U); break;
 case 11: { _Float16 h=(_Float16)a, g=(_Float16)b; _Float16 r=h+g, q=h*g, s=h-g; o[0]=fu((float)r); o[1]=fu((float)q); o[2]=fu((float)s); o[3]=fu((float)h); } break;
 case 12: { _Float16 h=(_Float16)(a*0.01f), g=(_Float16)(b*0.01f); _Float16 r=h/g; o[0]=fu((float)r); o[1]=h<g; o[2]=(u32_)(int)h; } break;
 case 13: o[0]=__builtin_popcount(u); o[1]=__builtin_clz(u|1); o[2]=__builtin_ctz(v|0x80000000u); o[3]=__builtin_popcountll(U); break;
 case 14: o[0]=fu(floorf(a)); o[1]=fu(ceilf(a)); o[2]=fu(truncf(a)); o[3]=fu(rintf(b)); break;
 case 15: pd(o,floor(A*7)); pd(o+2,rint(B*5)); break;
 case 16: pd(o,ceil(A*7)); pd(o+2,trunc(B*5)); break;
 case 17: { unsigned char c=(unsigned char)u, d=(unsigned char)(v>>8); signed char e=(signed char)(u>>16); o[0]=c*d; o[1]=(u32_)(e*(int)d); o[2]=(unsigned char)(c+d); o[3]=(u32_)(int)(signed char)(e+c); } break;
 case 18: { unsigned short c=(unsigned short)u, d=(unsigned short)(v>>16); short e=(short)(u>>16); o[0]=(unsigned short)(c*d); o[1]=(u32_)(int)(short)(e+c); o[2]=(unsigned short)(c-d); o[3]=(u32_)(e>(short)d); } break;
 case 19: { unsigned short c=(unsigned short)u, d=(unsigned short)(v>>16); o[0]=(unsigned short)(c<<(d&15)); o[1]=(unsigned short)(c>>(d&15)); o[2]=(u32_)(int)(short)((short)c>>(d&15)); o[3]=c<d?c:d; } break;
 case 20: o[0]=fu(a<b?a:b); o[1]=fu(fmaxf(a,b)); o[2]=fu(fminf(fmaxf(a,-1.f),1.f)); o[3]=(a<b)|((a>b)<<1)|((a==b)<<2)|((a!=b)<<3); break;
 case 21: o[0]=(A<B)|((A>=B)<<1)|((A!=B)<<2); o[1]=(iu<iv)|((u<v)<<1)|((U<V)<<2)|(((long long)U<(long long)V)<<3); break;
 case 22: o[0]=(u>>5)&0xfff; o[1]=(u32_)((iu<<7)>>20); o[2]=(u&v)|(~u&0x12345678); o[3]=(u<<13)|(u>>19); break;
 case 23: o[0]=__builtin_bswap32(u); p64(o+2,__builtin_bswap64(U)); break;
 case 24: o[0]=(u32_)(((u64_)u*v)>>32); o[1]=(u32_)(((long long)iu*iv)>>32); o[2]=(u&0xffffff)*(v&0xffffff); break;
 case 25: o[0]=u+v+7; o[1]=(u<<3)+v; o[2]=(u+v)<<5; o[3]=(u^v)+9; break;
 case 26: p64(o,U+V); p64(o+2,U-V); break;
 case 27: o[0]=fu(a*b+a); o[1]=fu(a-b*2.f); o[2]=fu(-a*0.5f); o[3]=fu(fabsf(a)-fabsf(b)); break;
 case 28: o[0]=fu((float)A); pd(o+2,A*B+A-B); break;
 case 29: { int e; o[0]=fu(frexpf(a,&e)); o[1]=(u32_)e; o[2]=fu(ldexpf(b,(int)(u&31)-16)); } break;
 case 30: { int e; pd(o,frexp(A*3,&e)); o[2]=(u32_)e; } break;
 case 31: pd(o,ldexp(B,(int)(u&63)-32)); pd(o+2,fmax(A,B)+fmin(A,B)); break;
 case 32: o[0]=fu(fmodf(a,b)); o[1]=fu(remainderf(a,fabsf(b)+1)); break;
 case 33: { float s=0; for(unsigned i=0;i<(u&15);i++) s+=a*i-b; o[0]=fu(s); } break;
 case 34: { u32_ t[8]; for(int i=0;i<8;i++) t[i]=u*i+v; u32_ s=0; for(int i=0;i<8;i++) s=s*31+t[(u>>i)&7]; o[0]=s; } break;
 case 35: o[0]=fu((float)(u&255)); o[1]=fu((float)((u>>8)&255)); o[2]=fu((float)((u>>16)&255)+(float)(u>>24)); break;
 case 36: { u32_ x=fu(a); u32_ y=(x+0x7fff+((x>>16)&1))>>16; FU z; z.u=y<<16; o[0]=fu(z.f*b); o[1]=y; } break;
 case 37: o[0]=(u32_)imin_(imin_(iu,iv),77); o[1]= u>v?u:v; o[2]=iu>iv?u-v:v-u; o[3]=(u32_)(iu<0?-iu:iu); break;
 case 38: { __int128 x=(__int128)(long long)U*(long long)V; p64(o,(u64_)x); p64(o+2,(u64_)(x>>64)); } break;
 case 39: { _Float16 h=(_Float16)(a*.01f), g=(_Float16)(b*.01f); o[0]=fu((float)(_Float16)__builtin_fmaf16(h,g,h)); o[1]=fu((float)h*(float)g+a); } break;
 case 40: o[0]=__builtin_bitreverse32(u); o[1]=(u32_)__builtin_clzll(U|1); o[2]=(u32_)__builtin_ctzll(U|(1ull<<63)); break;
 case 41: o[0]=(u32_)(__builtin_isnan(a)|(__builtin_isinf(b)<<1)|(__builtin_signbit(a)?4:0)); o[1]=fu(copysignf(a,b)); break;
 case 42: { u32_ s=0; for(int i=0;i<4;i++){ int x=(int)(signed char)(u>>(8*i)), y=(int)(signed char)(v>>(8*i)); s+=x*y; } o[0]=s; u32_ p=0; for(int i=0;i<4;i++){ u32_ x=(u>>(8*i))&255, y=(v>>(8*i))&255; p|=((x>y?x:y))<<(8*i);} o[1]=p; } break;
 case 44: { FU x,y; x.u=u*2654435761u; y.u=v*2246822519u^u; if(x.f==x.f&&y.f==y.f) o[0]=fu(x.f/y.f); x.u=(u&0x807fffff)|((u>>8)%3*0x3f000000u); y.u=(v&0x807fffff)|((v>>9)%3*0x3f400000u)|1; o[1]=fu(x.f/y.f); } break; // extreme exponents
 case 45: { DU x,y; x.u=U*0x9E3779B97F4A7C15ull; y.u=V*0xC2B2AE3D27D4EB4Full^U; if(x.d==x.d&&y.d==y.d) pd(o,x.d/y.d); x.u=(U&0x800fffffffffffffull)|((U>>8)%3*0x3fe0000000000000ull); y.u=(V&0x800fffffffffffffull)|((V>>9)%3*0x3ff0000000000000ull)|1; pd(o+2,x.d/y.d); } break;
 case 43: o[0]=fu(exp2f(a*.01f)); o[1]=fu(log2f(fabsf(b)+1)); o[2]=fu(expf(a*.01f)); o[3]=fu(sinf(b*0.1f)); break;
 }
}
